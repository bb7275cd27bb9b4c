/*
 * Anticipatory: the elevator of Linux 2.6 until 2006. Batches of reads and of writes
 * take turns; requests have deadlines; and after a read the drive may be kept idle for
 * a moment, since whoever reads in a sequence is about to ask for what follows.
 */
#ifndef ANTICIPATORY_H
#define ANTICIPATORY_H

#include "conflict.h"
#include "params.h"
#include "streams.h"

struct anticipatory {
    /* how long at most: a request waits, a batch lasts, by kind; the drive is kept idle */
    int64_t expire_ns[2];
    int64_t batch_ns[2];
    int64_t idle_ns;

    struct streams streams;
    enum request_kind batch; /* of reads or of writes */
    int64_t in_drive;        /* commands of this batch that are not completed */
    int64_t begun;           /* a batch of writes; of reads: since when writes wait for its end */
    int64_t looked[2];       /* when deadlines were last looked at, by kind */
    bool expecting;          /* the next read of a stream */
    int64_t expect_until;

    int64_t length; /* of a batch, in writes: what is thought to take batch_ns */
    int64_t left;   /* of this batch */
    bool judged;    /* the length has been corrected by this batch, or it cannot tell */
};

void anticipatory_reset(struct anticipatory *a, const struct params *p);

/* A request is about to be waiting, too. */
void anticipatory_arrived(struct anticipatory *a, const struct request_list *waiting,
                          const struct request *request, int64_t now);

/*
 * The next one; NULL: none for now, and at *due ask again even if nothing has happened.
 * head is the sector behind the last command; patient: more reads may come.
 */
struct request **anticipatory_pick(struct anticipatory *a, struct request_list *waiting,
                                   int64_t head, int64_t now, bool patient,
                                   const struct conflict *conflict, int64_t *due);

/* A command has been made of one that was picked. */
void anticipatory_taken(struct anticipatory *a);

/* A command of these requests is completed. */
void anticipatory_completed(struct anticipatory *a, const struct request_list *command,
                            int64_t now);

#endif
