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
    unsigned char *staged; /* one destaging write */
    const struct cache *cache;
    struct medium medium; /* what the model calls */
};

/* The model's cache says which of the sectors are in it. */
bool content_init(struct content *c, int64_t size, int64_t merge_bytes,
                  const struct cache *cache);
void content_free(struct content *c);

#endif
