/* Scheduler: which waiting requests become the drive's next command. */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "params.h"
#include "request.h"

/* Whether the drive is at work on the same sectors, so that the request has to wait. */
struct conflict {
    bool (*meets)(const void *context, const struct request *request);
    const void *context;
};

struct scheduler {
    const char *name;
    /* Best of the requests in waiting, or NULL; head is the sector behind the last command. */
    struct request **(*pick)(struct request_list *waiting, int64_t head,
                             const struct conflict *conflict);
};

const struct scheduler *scheduler_named(enum scheduler_kind kind);

/*
 * Take the next command out of waiting, in order of sectors: the scheduler's
 * choice and whatever continues it on the disk, up to limit sectors. False if
 * every one of them has to wait.
 */
bool scheduler_take(const struct scheduler *s, struct request_list *waiting, int64_t head,
                    int64_t limit, const struct conflict *conflict, struct request_list *command);

#endif
