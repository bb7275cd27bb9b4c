#include "sectordata.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int64_t bytes(int64_t sectors)
{
    return sectors << SECTOR_SHIFT;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static unsigned char *staged_at(const struct sectordata *d, int64_t unit)
{
    return d->staged + unit * d->staged_bytes;
}

/* The media, over it what is being destaged, over that what is dirty: the newest wins. */
static void medium_read(void *context, const struct request *r)
{
    struct sectordata *d = context;
    const struct cache *cache = d->cache;
    int64_t end = r->sector + r->count;
    int64_t first;
    int64_t last;
    unsigned char *to = r->data;

    sectordata_settle(d);
    if (to == NULL) /* the caller takes it from the media itself (timing off) */
        return;
    image_read(&d->image, bytes(r->sector), bytes(r->count), to);
    for (int64_t unit = 0; unit < cache->units; unit++) {
        const struct staged *staged = &cache->staged[unit];

        first = larger(r->sector, staged->sector);
        last = smaller(end, staged->sector + staged->count);
        if (first < last)
            memcpy(to + bytes(first - r->sector),
                   staged_at(d, unit) + bytes(first - staged->sector), (size_t)bytes(last - first));
    }
    for (first = sectors_next(&cache->dirty, r->sector); first < end;
         first = sectors_next(&cache->dirty, last)) {
        last = sectors_next_absent(&cache->dirty, first, end);
        memcpy(to + bytes(first - r->sector), d->cached + bytes(first),
               (size_t)bytes(last - first));
    }
}

static void medium_write(void *context, const struct request *r, int64_t sector, int64_t count)
{
    struct sectordata *d = context;

    moves_write(&d->moves, bytes(sector), bytes(count),
                (const unsigned char *)r->data + bytes(sector - r->sector));
    if (!r->lasting)
        sectordata_settle(d);
}

static void medium_cache(void *context, const struct request *r)
{
    struct sectordata *d = context;

    moves_copy(&d->moves, d->cached + bytes(r->sector), r->data, bytes(r->count));
    if (!r->lasting)
        sectordata_settle(d);
}

/* Pages that hold nothing dirty any more give their memory back. */
static void medium_drop(void *context, int64_t sector, int64_t count)
{
    struct sectordata *d = context;
    const int64_t page = IMAGE_PAGE >> SECTOR_SHIFT;
    int64_t first = sector / page * page;
    int64_t end = smaller((sector + count + page - 1) / page * page, d->cache->dirty.size);

    if (sectors_within(&d->cache->dirty, first, sector - first) > 0)
        first += page;
    if (sectors_within(&d->cache->dirty, sector + count, end - sector - count) > 0)
        end -= page;
    if (first < end)
        moves_discard(&d->moves, d->cached + bytes(first), bytes(end - first));
}

static void medium_stage(void *context, int64_t unit, int64_t sector, int64_t count)
{
    struct sectordata *d = context;

    moves_copy(&d->moves, staged_at(d, unit), d->cached + bytes(sector), bytes(count));
    medium_drop(d, sector, count);
}

static void medium_unstage(void *context, int64_t unit, int64_t count)
{
    struct sectordata *d = context;

    moves_write(&d->moves, bytes(d->cache->staged[unit].sector), bytes(count), staged_at(d, unit));
}

static void medium_restage(void *context, int64_t unit, int64_t passed)
{
    struct sectordata *d = context;
    const struct cache *cache = d->cache;
    const struct staged *staged = &cache->staged[unit];
    int64_t end = staged->sector + staged->count;

    sectordata_settle(d);
    for (int64_t s = staged->sector + passed; s < end;) {
        int64_t newer = smaller(sectors_next(&cache->dirty, s), end);

        memcpy(d->cached + bytes(s), staged_at(d, unit) + bytes(s - staged->sector),
               (size_t)bytes(newer - s));
        s = sectors_next_absent(&cache->dirty, newer, end);
    }
}

static void medium_keep(void *context, int64_t sector, int64_t count)
{
    struct sectordata *d = context;

    moves_write(&d->moves, bytes(sector), bytes(count), d->cached + bytes(sector));
}

bool sectordata_init(struct sectordata *d, int64_t size, const struct params *p,
                     const struct cache *cache)
{
    memset(d, 0, sizeof *d);
    d->size = size;
    d->cache = cache;
    moves_init(&d->moves, &d->image);
    d->medium = (struct medium){
        .context = d,
        .read = medium_read,
        .write = medium_write,
        .cache = medium_cache,
        .stage = medium_stage,
        .unstage = medium_unstage,
        .keep = medium_keep,
        .drop = medium_drop,
        .restage = medium_restage,
    };
    d->cached = image_map(size);
    if (image_init(&d->image, size) && d->cached != NULL && sectordata_adopt(d, p))
        return true;
    sectordata_free(d);
    return false;
}

bool sectordata_adopt(struct sectordata *d, const struct params *p)
{
    unsigned char *staged = malloc((size_t)(p->units * p->merge_bytes));

    if (staged == NULL)
        return false;
    sectordata_settle(d);
    free(d->staged);
    d->staged = staged;
    d->staged_bytes = p->merge_bytes;
    return true;
}

void sectordata_settle(struct sectordata *d)
{
    moves_all(&d->moves);
}

void sectordata_snapshot(struct sectordata *d)
{
    sectordata_settle(d);
    image_snapshot(&d->image);
}

bool sectordata_restore(struct sectordata *d)
{
    sectordata_settle(d);
    return image_restore(&d->image);
}

int sectordata_pieces(struct sectordata *d, int64_t sector, int64_t count, struct iovec *piece,
                      int limit)
{
    sectordata_settle(d);
    return image_pieces(&d->image, bytes(sector), bytes(count), piece, limit);
}

void sectordata_free(struct sectordata *d)
{
    if (d->cached != NULL)
        munmap(d->cached, (size_t)d->size);
    free(d->staged);
    image_free(&d->image);
}
