#include "conflict.h"

/*
 * A request must not overtake an older one that touches the same sectors, unless
 * both only read: the newest write has to win, and a read sees what was written
 * before it.
 */
bool conflict_must_wait(const struct conflict *conflict, const struct request_list *waiting,
                        const struct request *request)
{
    for (const struct request *older = waiting->first; older != request; older = older->next)
        if ((older->kind == REQUEST_WRITE || request->kind == REQUEST_WRITE) &&
            older->sector < request->sector + request->count &&
            request->sector < older->sector + older->count)
            return true;
    return conflict->meets(conflict->context, request);
}
