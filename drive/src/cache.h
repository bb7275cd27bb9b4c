/* Cache: which sectors only the write cache holds. */
#ifndef CACHE_H
#define CACHE_H

#include "params.h"
#include "sectors.h"
#include "stripes.h"

/* Sectors on their way to the media. */
struct staged {
    int64_t sector;
    int64_t count; /* 0: nothing under way */
};

/*
 * A destaging write takes its sectors out of dirty and into its unit's staged
 * extent when it starts, so that a newer write to them meanwhile is dirty again
 * beside the older version under way. Both occupy the cache.
 */
struct cache {
    struct sectors dirty;
    uint64_t writes;  /* that the cache has taken so far */
    uint64_t *writer; /* the number of the newest that brought a sector; only of dirty ones */
    int64_t capacity; /* sectors */
    int64_t units;
    int64_t staged_sectors;
    struct staged staged[UNITS_MAX];
};

bool cache_init(struct cache *c, const struct params *p, int64_t sectors);
void cache_free(struct cache *c);

/* Another drive's capacity and units; nothing may be staged. */
void cache_adopt(struct cache *c, const struct params *p);

int64_t cache_used(const struct cache *c);

/* A write brings these. */
void cache_take(struct cache *c, int64_t sector, int64_t count);

/*
 * Pieces: dirty sectors in a row that one write brought, and none has replaced.
 * The end of the piece that begins at a dirty sector, and how many there are of
 * the writes up to a number.
 */
int64_t cache_piece_end(const struct cache *c, int64_t sector);
int64_t cache_pieces(const struct cache *c, uint64_t until);

/*
 * Besides what is reserved for writes on their way into it. A rewrite needs as much: what it
 * replaces is in the cache until its own bytes have come, and may be under way to the media then.
 */
bool cache_has_room(const struct cache *c, int64_t count, int64_t reserved);

/* All of the range is in the cache: a read needs no media. */
bool cache_holds(const struct cache *c, int64_t sector, int64_t count);

/* First dirty sector of the unit, upwards from the head and around; -1 if there is none. */
int64_t cache_next(const struct cache *c, const struct stripes *s, int64_t unit, int64_t head);

/* Take the next extent to destage, at most limit long, of a unit that has one. */
void cache_stage(struct cache *c, const struct stripes *s, int64_t unit, int64_t head,
                 int64_t limit);
void cache_unstage(struct cache *c, int64_t unit);

#endif
