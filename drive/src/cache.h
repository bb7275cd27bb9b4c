/* Cache: which sectors only the volatile write cache holds. */
#ifndef CACHE_H
#define CACHE_H

#include "params.h"
#include "sectors.h"

/*
 * A destaging write takes its sectors out of dirty and into the staged extent
 * when it starts, so that a newer write to them meanwhile is dirty again beside
 * the older version under way. Both occupy the cache.
 */
struct cache {
    struct sectors dirty;
    int64_t capacity; /* sectors */
    int64_t staged_sector;
    int64_t staged_count; /* 0: nothing under way */
};

bool cache_init(struct cache *c, const struct params *p, int64_t sectors);
void cache_free(struct cache *c);

int64_t cache_used(const struct cache *c);
bool cache_has_room(const struct cache *c, int64_t sector, int64_t count);

/* All of the range is in the cache: a read needs no media. */
bool cache_holds(const struct cache *c, int64_t sector, int64_t count);

/* Take the next extent to destage, upwards from the head, at most limit long. */
void cache_stage(struct cache *c, int64_t head, int64_t limit);
void cache_unstage(struct cache *c);

#endif
