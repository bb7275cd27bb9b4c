/* Scheduler: which waiting requests become the drive's next command. */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "anticipatory.h"
#include "conflict.h"
#include "params.h"

#define SCHEDULER_NEVER INT64_MAX

struct scheduler {
    enum scheduler_kind kind;
    struct anticipatory anticipatory;
    int64_t limit; /* sectors of a command */
    int64_t head;  /* the sector behind the last one */
    int64_t due;   /* when to ask again, whatever happens before */
    bool patient;  /* what arrives may still come before what waits: no flush is between them */
};

/* As these parameters say, with nothing waiting; the head is the caller's. */
void scheduler_reset(struct scheduler *s, const struct params *p);

/* A request joins those that wait. */
void scheduler_admit(struct scheduler *s, struct request_list *waiting, struct request *request,
                     int64_t now);

/*
 * Take the next command out of waiting, in order of sectors: the scheduler's
 * choice and whatever continues it on the disk. False if there is none for now.
 */
bool scheduler_take(struct scheduler *s, struct request_list *waiting, int64_t now,
                    const struct conflict *conflict, struct request_list *command);

/* The requests of a command are completed. */
void scheduler_completed(struct scheduler *s, const struct request_list *command, int64_t now);

#endif
