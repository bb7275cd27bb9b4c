/* Scheduler: which waiting requests become the drive's next command. */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "params.h"
#include "request.h"

struct scheduler {
    const char *name;
    /* Best of the requests in waiting; head is the sector behind the last command. */
    struct request **(*pick)(struct request_list *waiting, int64_t head);
};

const struct scheduler *scheduler_named(enum scheduler_kind kind);

/*
 * Take the next command out of waiting, in order of sectors: the scheduler's
 * choice and whatever continues it on the disk, up to limit sectors.
 */
void scheduler_take(const struct scheduler *s, struct request_list *waiting, int64_t head,
                    int64_t limit, struct request_list *command);

#endif
