#include "anticipatory.h"

#include <string.h>

#define BACK_MAX 1048576           /* sectors that the elevator may go back */
#define CLOSE_AHEAD 8192           /* sectors: such a read is as good as the expected one */
#define CLOSE_BEHIND 4096          /* likewise */
#define WRITE_NS INT64_C(10000000) /* what a write is thought to take before any was seen */

void anticipatory_reset(struct anticipatory *a, const struct params *p)
{
    int64_t length = p->write_batch_expire_ns / WRITE_NS;

    memset(a, 0, sizeof *a);
    a->expire_ns[REQUEST_READ] = p->read_expire_ns;
    a->expire_ns[REQUEST_WRITE] = p->write_expire_ns;
    a->batch_ns[REQUEST_READ] = p->read_batch_expire_ns;
    a->batch_ns[REQUEST_WRITE] = p->write_batch_expire_ns;
    a->idle_ns = p->antic_expire_ns;
    a->batch = REQUEST_READ;
    a->length = length > 0 ? length : 1;
}

static struct request **oldest(struct request_list *waiting, enum request_kind kind,
                               const struct conflict *conflict)
{
    for (struct request **link = &waiting->first; *link != NULL; link = &(*link)->next)
        if ((*link)->kind == kind && !conflict_must_wait(conflict, waiting, *link))
            return link;
    return NULL;
}

/*
 * Upwards from the head; but back where that is less than half as far. With nothing
 * above back to the nearest, or, where that is too far, to the lowest.
 */
static struct request **sweep(struct request_list *waiting, enum request_kind kind, int64_t head,
                              const struct conflict *conflict)
{
    struct request **above = NULL;
    struct request **below = NULL;
    struct request **lowest = NULL;

    for (struct request **link = &waiting->first; *link != NULL; link = &(*link)->next) {
        const struct request *r = *link;

        if (r->kind != kind || conflict_must_wait(conflict, waiting, r))
            continue;
        if (r->sector >= head && (above == NULL || r->sector < (*above)->sector))
            above = link;
        if (r->sector < head && head - r->sector <= BACK_MAX &&
            (below == NULL || r->sector > (*below)->sector))
            below = link;
        if (lowest == NULL || r->sector < (*lowest)->sector)
            lowest = link;
    }
    if (above != NULL && below != NULL)
        return 2 * (head - (*below)->sector) < (*above)->sector - head ? below : above;
    return above != NULL ? above : below != NULL ? below : lowest;
}

/* Deadlines are looked at once in as long a time as they are long. */
static bool overdue(struct anticipatory *a, const struct request *first, int64_t now)
{
    int64_t expire = a->expire_ns[first->kind];

    if (now - a->looked[first->kind] < expire)
        return false;
    a->looked[first->kind] = now;
    return now - first->arrival >= expire;
}

/* --- batches of writes ----------------------------------------------------------------- */

/* Writes took so long, in which there were to be so many: more or fewer of them in the next. */
static void judge(struct anticipatory *a, int64_t took)
{
    int64_t wanted = a->batch_ns[REQUEST_WRITE];

    a->judged = true;
    if (took > wanted)
        a->length = took > 3 * wanted ? a->length / 2 : a->length - 1;
    else
        a->length = 3 * took < wanted ? a->length * 2 : a->length + 1;
    if (a->length < 1)
        a->length = 1;
}

static struct request **begin_writes(struct anticipatory *a, struct request **first, int64_t now)
{
    a->batch = REQUEST_WRITE;
    a->begun = now;
    a->looked[REQUEST_WRITE] = now;
    a->left = a->length;
    a->judged = false;
    return first;
}

/* The next of a batch of writes; NULL: it is over, or there is none. */
static struct request **next_write(struct anticipatory *a, struct request_list *waiting,
                                   int64_t head, int64_t now, const struct conflict *conflict,
                                   struct request **read, struct request **write)
{
    bool late = now - a->begun >= a->batch_ns[REQUEST_WRITE];

    if (write == NULL)
        return NULL;
    if (read != NULL && (late || a->left == 0)) {
        if (!a->judged && late && a->in_drive == 0)
            judge(a, now - a->begun);
        return NULL;
    }
    return overdue(a, *write, now) ? write : sweep(waiting, REQUEST_WRITE, head, conflict);
}

/* --- batches of reads ------------------------------------------------------------------ */

static struct request **begin_reads(struct anticipatory *a, struct request **first, int64_t now)
{
    a->batch = REQUEST_READ;
    a->begun = now;
    a->looked[REQUEST_READ] = now;
    a->expecting = false;
    return first;
}

/* One that is as good as what is expected. */
static struct request **close_read(struct request_list *waiting, int64_t head,
                                   const struct conflict *conflict)
{
    struct request **link = sweep(waiting, REQUEST_READ, head, conflict);

    if (link == NULL || (*link)->sector > head + CLOSE_AHEAD ||
        (*link)->sector < head - CLOSE_BEHIND)
        return NULL;
    return link;
}

/* The next of a batch of reads; NULL: none, and *due says whether one is expected. */
static struct request **next_read(struct anticipatory *a, struct request_list *waiting,
                                  int64_t head, int64_t now, bool patient,
                                  const struct conflict *conflict, struct request **read,
                                  int64_t *due)
{
    if (read != NULL && overdue(a, *read, now))
        return read;
    if (patient && a->expecting && now < a->expect_until) {
        struct request **link = close_read(waiting, head, conflict);

        if (link == NULL)
            *due = a->expect_until;
        return link;
    }
    return read != NULL ? sweep(waiting, REQUEST_READ, head, conflict) : NULL;
}

/* --- all ------------------------------------------------------------------------------- */

void anticipatory_arrived(struct anticipatory *a, const struct request_list *waiting,
                          const struct request *request, int64_t now)
{
    const struct request *other = waiting->first;

    if (request->kind == REQUEST_READ) {
        streams_arrived(&a->streams, request, now);
        return;
    }
    while (other != NULL && other->kind != REQUEST_WRITE)
        other = other->next;
    if (other != NULL)
        return;
    if (a->batch == REQUEST_READ)
        a->begun = now;
    else if (a->in_drive == 0)
        a->judged = true; /* writes with gaps between them do not tell how long they take */
}

struct request **anticipatory_pick(struct anticipatory *a, struct request_list *waiting,
                                   int64_t head, int64_t now, bool patient,
                                   const struct conflict *conflict, int64_t *due)
{
    struct request **read = oldest(waiting, REQUEST_READ, conflict);
    struct request **write = oldest(waiting, REQUEST_WRITE, conflict);
    struct request **next;

    if (a->batch == REQUEST_WRITE) {
        next = next_write(a, waiting, head, now, conflict, read, write);
        if (next != NULL || read == NULL || a->in_drive > 0)
            return next;
        return begin_reads(a, read, now);
    }
    if (read == NULL || write == NULL || now - a->begun < a->batch_ns[REQUEST_READ]) {
        /* With reads to come that are worth a wait, they go one by one. */
        if (a->idle_ns > 0 && a->in_drive > 0)
            return NULL;
        next = next_read(a, waiting, head, now, patient, conflict, read, due);
        if (next != NULL || *due != INT64_MAX)
            return next;
    }
    if (write == NULL || a->in_drive > 0)
        return NULL;
    return begin_writes(a, write, now);
}

void anticipatory_taken(struct anticipatory *a)
{
    a->in_drive++;
    a->expecting = false;
    if (a->batch == REQUEST_WRITE && a->left > 0)
        a->left--;
}

void anticipatory_completed(struct anticipatory *a, const struct request_list *command, int64_t now)
{
    if (command->first->kind == REQUEST_FLUSH)
        return;
    a->in_drive--;
    for (const struct request *r = command->first; r != NULL; r = r->next)
        if (r->kind == REQUEST_READ && streams_completed(&a->streams, r, now, a->idle_ns)) {
            a->expecting = true;
            a->expect_until = now + a->idle_ns;
        }
    if (a->batch == REQUEST_WRITE && a->left == 0 && a->in_drive == 0 && !a->judged)
        judge(a, now - a->begun);
}
