/* Content: the bytes on the media, in the cache and on their way between. */
#ifndef CONTENT_H
#define CONTENT_H

#include "cache.h"
#include "model.h"
#include "store.h"

struct content {
    int64_t size;
    struct store media;
    unsigned char *cached; /* as large as the disk, sparse: what cache->dirty names */
    int64_t staged_bytes;  /* longest destaging write */
    unsigned char *staged; /* one of each unit */
    const struct cache *cache;
    struct medium medium; /* what the model calls */
};

/* The model's cache says which of the sectors are in it. */
bool content_init(struct content *c, int64_t size, const struct params *p,
                  const struct cache *cache);

/* Another drive's destaging writes; none may be under way. False if memory is short. */
bool content_adopt(struct content *c, const struct params *p);
void content_free(struct content *c);

#endif
