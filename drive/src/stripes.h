/* Stripes: how the host's sectors are spread over the units, spindles or flash channels. */
#ifndef STRIPES_H
#define STRIPES_H

#include "params.h"

struct stripes {
    int64_t units;
    int64_t sectors; /* of one chunk; chunks go to the units in turn */
};

static inline int64_t stripes_unit(const struct stripes *s, int64_t sector)
{
    return s->units == 1 ? 0 : sector / s->sectors % s->units;
}

/* Sectors of the unit among the host's sectors [0, end): its own number of the next one. */
static inline int64_t stripes_local(const struct stripes *s, int64_t unit, int64_t end)
{
    int64_t round = s->sectors * s->units;
    int64_t rest = end % round - unit * s->sectors;

    if (s->units == 1)
        return end;
    rest = rest < 0 ? 0 : rest > s->sectors ? s->sectors : rest;
    return end / round * s->sectors + rest;
}

/* The host's number of a unit's own sector. */
static inline int64_t stripes_host(const struct stripes *s, int64_t unit, int64_t local)
{
    if (s->units == 1)
        return local;
    return (local / s->sectors * s->units + unit) * s->sectors + local % s->sectors;
}

/* How many of the unit's sectors from local on, at most count, are in a row for the host. */
static inline int64_t stripes_run(const struct stripes *s, int64_t local, int64_t count)
{
    int64_t rest = s->sectors - local % s->sectors;

    return s->units == 1 || count < rest ? count : rest;
}

#endif
