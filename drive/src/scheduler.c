#include "scheduler.h"

#include <stddef.h>

static struct request **pick_fifo(struct request_list *waiting, const struct conflict *conflict)
{
    return conflict_must_wait(conflict, waiting, waiting->first) ? NULL : &waiting->first;
}

/* Upwards from the head; from the lowest again when nothing is left above. */
static struct request **pick_clook(struct request_list *waiting, int64_t head,
                                   const struct conflict *conflict)
{
    struct request **above = NULL;
    struct request **lowest = NULL;

    for (struct request **link = &waiting->first; *link != NULL; link = &(*link)->next) {
        if (conflict_must_wait(conflict, waiting, *link))
            continue;
        if ((*link)->sector >= head && (above == NULL || (*link)->sector < (*above)->sector))
            above = link;
        if (lowest == NULL || (*link)->sector < (*lowest)->sector)
            lowest = link;
    }
    return above != NULL ? above : lowest;
}

static struct request **pick(struct scheduler *s, struct request_list *waiting, int64_t now,
                             const struct conflict *conflict)
{
    s->due = SCHEDULER_NEVER;
    switch (s->kind) {
    case SCHEDULER_CLOOK:
        return pick_clook(waiting, s->head, conflict);
    case SCHEDULER_FIFO:
        return pick_fifo(waiting, conflict);
    case SCHEDULER_ANTICIPATORY:
        return anticipatory_pick(&s->anticipatory, waiting, s->head, now, s->patient, conflict,
                                 &s->due);
    }
    return NULL;
}

void scheduler_reset(struct scheduler *s, const struct params *p)
{
    s->kind = (enum scheduler_kind)p->scheduler;
    s->limit = p->merge_bytes / SECTOR_BYTES;
    s->due = SCHEDULER_NEVER;
    anticipatory_reset(&s->anticipatory, p);
}

void scheduler_admit(struct scheduler *s, struct request_list *waiting, struct request *request,
                     int64_t now)
{
    if (s->kind == SCHEDULER_ANTICIPATORY)
        anticipatory_arrived(&s->anticipatory, waiting, request, now);
    request_list_append(waiting, request);
}

static void prepend(struct request_list *list, struct request *request)
{
    request->next = list->first;
    if (list->first == NULL)
        list->last = &request->next;
    list->first = request;
}

bool scheduler_take(struct scheduler *s, struct request_list *waiting, int64_t now,
                    const struct conflict *conflict, struct request_list *command)
{
    struct request **link = pick(s, waiting, now, conflict);
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
            end - first + other->count > s->limit || conflict_must_wait(conflict, waiting, other)) {
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
    s->head = end;
    if (s->kind == SCHEDULER_ANTICIPATORY)
        anticipatory_taken(&s->anticipatory);
    return true;
}

void scheduler_completed(struct scheduler *s, const struct request_list *command, int64_t now)
{
    if (s->kind == SCHEDULER_ANTICIPATORY)
        anticipatory_completed(&s->anticipatory, command, now);
}
