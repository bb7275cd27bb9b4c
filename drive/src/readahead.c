#include "readahead.h"

#include <string.h>

void readahead_init(struct readahead *r, const struct params *p, const struct mechanism *m,
                    int64_t sectors)
{
    memset(r, 0, sizeof *r);
    r->mechanism = m;
    r->segments = p->read_segments;
    r->segment_sectors = p->read_segment_bytes / SECTOR_BYTES;
    r->sectors = sectors;
}

/* When the first count sectors not yet passed will have been, and how many by limit. */
static int64_t pass(const struct readahead *r, int64_t count, int64_t limit, int64_t *end)
{
    struct place at;

    *end = r->since;
    if (count <= 0)
        return 0;
    /* At the start of a track the heads still have to change to it. */
    at = geometry_locate(&r->mechanism->geometry, r->from);
    return mechanism_walk(r->mechanism, r->from, count, at.sector == 0, r->since, limit, end);
}

/* Bring the current segment up to date; its ring keeps only the newest sectors. */
static void catch_up(struct readahead *r, int64_t now)
{
    struct segment *s = &r->segment[r->current];
    int64_t end;

    if (!r->active)
        return;
    r->from += pass(r, r->limit - r->from, now, &end);
    r->since = end;
    s->end = r->from;
    if (s->end - s->first > r->segment_sectors)
        s->first = s->end - r->segment_sectors;
}

static int64_t limit_after(const struct readahead *r, int64_t sector)
{
    return sector + r->segment_sectors < r->sectors ? sector + r->segment_sectors : r->sectors;
}

void readahead_start(struct readahead *r, int64_t sector, int64_t count, int64_t now)
{
    int64_t oldest = 0;

    if (r->segments == 0)
        return;
    for (int64_t i = 0; i < r->segments; i++) {
        /* A segment that this read continues or repeats is used on. */
        if (r->segment[i].first <= sector && sector <= r->segment[i].end &&
            r->segment[i].end > r->segment[i].first) {
            oldest = i;
            break;
        }
        if (r->segment[i].used < r->segment[oldest].used)
            oldest = i;
    }
    r->segment[oldest] = (struct segment){sector, sector + count, ++r->clock};
    r->current = oldest;
    r->from = sector + count;
    r->since = now;
    r->limit = limit_after(r, r->from);
    r->active = true;
    catch_up(r, now);
}

int64_t readahead_stop(struct readahead *r, int64_t now)
{
    if (!r->active)
        return -1;
    catch_up(r, now);
    r->active = false;
    return r->segment[r->current].end;
}

enum readahead_answer readahead_ask(struct readahead *r, int64_t sector, int64_t count, int64_t now,
                                    int64_t *ready)
{
    struct segment *s;

    catch_up(r, now);
    *ready = now;
    for (int64_t i = 0; i < r->segments; i++) {
        s = &r->segment[i];
        if (s->first <= sector && sector + count <= s->end) {
            s->used = ++r->clock;
            /* Whoever reads on is read ahead for, unless the heads rest already. */
            if (r->active && i == r->current && s->end < r->limit)
                r->limit = limit_after(r, sector + count);
            return READAHEAD_HIT;
        }
    }
    if (!r->active)
        return READAHEAD_MISS;
    s = &r->segment[r->current];
    /* Once resting at the limit, the next sector needs a new rotation: a miss. */
    if (sector < s->first || sector > s->end || s->end >= r->limit)
        return READAHEAD_MISS;
    s->used = ++r->clock;
    if (r->limit < limit_after(r, sector + count))
        r->limit = limit_after(r, sector + count);
    pass(r, sector + count - r->from, INT64_MAX, ready);
    return READAHEAD_COMING;
}

void readahead_forget(struct readahead *r, int64_t sector, int64_t count, int64_t now)
{
    catch_up(r, now);
    for (int64_t i = 0; i < r->segments; i++) {
        struct segment *s = &r->segment[i];

        if (sector >= s->end || sector + count <= s->first)
            continue;
        /* What was read before the written sectors stays; the heads do not go on. */
        if (sector > s->first)
            s->end = sector;
        else
            s->end = s->first;
        if (r->active && i == r->current)
            r->active = false;
    }
    /* A write ahead of the heads: what they will read there is the new content. */
}

void readahead_clear(struct readahead *r)
{
    r->active = false;
    memset(r->segment, 0, sizeof r->segment);
}
