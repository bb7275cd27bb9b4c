#include "scheduler.h"

#include <stddef.h>

/*
 * A request must not overtake an older one that touches the same sectors, unless
 * both only read: the newest write has to win, and a read sees what was written
 * before it.
 */
static bool must_wait(const struct request_list *waiting, const struct request *request,
                      const struct conflict *conflict)
{
    for (const struct request *older = waiting->first; older != request; older = older->next)
        if ((older->kind == REQUEST_WRITE || request->kind == REQUEST_WRITE) &&
            older->sector < request->sector + request->count &&
            request->sector < older->sector + older->count)
            return true;
    return conflict->meets(conflict->context, request);
}

static struct request **pick_fifo(struct request_list *waiting, int64_t head,
                                  const struct conflict *conflict)
{
    (void)head;
    return must_wait(waiting, waiting->first, conflict) ? NULL : &waiting->first;
}

/* Upwards from the head; from the lowest again when nothing is left above. */
static struct request **pick_clook(struct request_list *waiting, int64_t head,
                                   const struct conflict *conflict)
{
    struct request **above = NULL;
    struct request **lowest = NULL;

    for (struct request **link = &waiting->first; *link != NULL; link = &(*link)->next) {
        if (must_wait(waiting, *link, conflict))
            continue;
        if ((*link)->sector >= head && (above == NULL || (*link)->sector < (*above)->sector))
            above = link;
        if (lowest == NULL || (*link)->sector < (*lowest)->sector)
            lowest = link;
    }
    return above != NULL ? above : lowest;
}

static const struct scheduler schedulers[] = {
    [SCHEDULER_CLOOK] = {"clook", pick_clook},
    [SCHEDULER_FIFO] = {"fifo", pick_fifo},
};

const struct scheduler *scheduler_named(enum scheduler_kind kind)
{
    return &schedulers[kind];
}

static void prepend(struct request_list *list, struct request *request)
{
    request->next = list->first;
    if (list->first == NULL)
        list->last = &request->next;
    list->first = request;
}

bool scheduler_take(const struct scheduler *s, struct request_list *waiting, int64_t head,
                    int64_t limit, const struct conflict *conflict, struct request_list *command)
{
    struct request **link = s->pick(waiting, head, conflict);
    struct request *request;
    int64_t first;
    int64_t end;

    if (link == NULL)
        return false;
    request = *link;
    first = request->sector;
    end = request->sector + request->count;
    request_list_init(command);
    request_list_remove(waiting, link);
    request_list_append(command, request);

    link = &waiting->first;
    while (*link != NULL) {
        struct request *other = *link;
        bool behind = other->sector == end;
        bool before = other->sector + other->count == first;

        if (other->kind != request->kind || other->fua != request->fua || !(behind || before) ||
            end - first + other->count > limit || must_wait(waiting, other, conflict)) {
            link = &other->next;
            continue;
        }
        request_list_remove(waiting, link);
        if (behind) {
            request_list_append(command, other);
            end += other->count;
        } else {
            prepend(command, other);
            first -= other->count;
        }
        link = &waiting->first; /* the longer command may now touch an earlier one */
    }
    return true;
}
