/* Conflict: requests of the same sectors, of which none may overtake the other. */
#ifndef CONFLICT_H
#define CONFLICT_H

#include "request.h"

/* Whether the drive is at work on the same sectors, so that the request has to wait. */
struct conflict {
    bool (*meets)(const void *context, const struct request *request);
    const void *context;
};

/* Whether one of the waiting has to wait for an older one, or for what is in the drive. */
bool conflict_must_wait(const struct conflict *conflict, const struct request_list *waiting,
                        const struct request *request);

#endif
