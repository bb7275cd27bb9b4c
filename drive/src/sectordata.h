/* Sector data: the bytes on the media, in the cache and on their way between. */
#ifndef SECTORDATA_H
#define SECTORDATA_H

#include "cache.h"
#include "model.h"
#include "image.h"
#include "moves.h"

struct sectordata {
    int64_t size;
    struct image image;
    unsigned char *cached; /* as large as the disk, sparse: what cache->dirty names */
    int64_t staged_bytes;  /* longest destaging write */
    unsigned char *staged; /* one of each unit */
    const struct cache *cache;
    struct moves moves;   /* what the above is to become */
    struct medium medium; /* what the model calls */
};

/* The model's cache says which of the sectors are in it. */
bool sectordata_init(struct sectordata *d, int64_t size, const struct params *p,
                     const struct cache *cache);

/* Another drive's destaging writes; none may be under way. False if memory is short. */
bool sectordata_adopt(struct sectordata *d, const struct params *p);
void sectordata_free(struct sectordata *d);

/* Do what has been put off; before anybody looks into the image. */
void sectordata_settle(struct sectordata *d);

/* As those of the image, of what it is by now. */
void sectordata_snapshot(struct sectordata *d);
bool sectordata_restore(struct sectordata *d);
int sectordata_pieces(struct sectordata *d, int64_t sector, int64_t count, struct iovec *piece,
                      int limit);

#endif
