#include "streams.h"

#include <stddef.h>

#define NEAR 256                    /* sectors: 128 kB, as far as the kernels of 2005 read ahead */
#define THINK_MAX INT64_C(20000000) /* a longer one says no more than that it was long */

static int64_t distance(int64_t a, int64_t b)
{
    return a < b ? b - a : a - b;
}

void streams_arrived(struct streams *s, const struct request *read, int64_t now)
{
    struct stream *found = NULL;
    struct stream *oldest = &s->stream[0];

    for (int i = 0; i < STREAMS_MAX; i++) {
        struct stream *each = &s->stream[i];

        if (each->newest != 0 && distance(each->next, read->sector) <= NEAR &&
            (found == NULL ||
             distance(each->next, read->sector) < distance(found->next, read->sector)))
            found = each;
        if (each->newest < oldest->newest)
            oldest = each;
    }
    if (found == NULL) {
        found = oldest;
        *found = (struct stream){0};
    } else if (!found->reading) {
        int64_t think = now - found->done < THINK_MAX ? now - found->done : THINK_MAX;

        found->think_ns = found->continued ? (7 * found->think_ns + think) / 8 : think;
        found->continued = true;
    }
    found->next = read->sector + read->count;
    found->newest = read->sequence;
    found->reading = true;
}

bool streams_completed(struct streams *s, const struct request *read, int64_t now, int64_t within)
{
    for (int i = 0; i < STREAMS_MAX; i++) {
        struct stream *each = &s->stream[i];

        /* If it has gone on meanwhile, its next read is waiting already. */
        if (each->newest != read->sequence)
            continue;
        each->reading = false;
        each->done = now;
        return each->continued && each->think_ns <= within;
    }
    return false;
}
