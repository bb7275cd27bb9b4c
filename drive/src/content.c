#include "content.h"

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

/* The media, over it what is being destaged, over that what is dirty: the newest wins. */
static void medium_read(void *context, const struct request *r)
{
    struct content *c = context;
    const struct cache *cache = c->cache;
    int64_t end = r->sector + r->count;
    int64_t first = larger(r->sector, cache->staged_sector);
    int64_t last = smaller(end, cache->staged_sector + cache->staged_count);
    unsigned char *to = r->data;

    if (to == NULL) /* the caller takes it from the media itself (timing off) */
        return;
    store_read(&c->media, bytes(r->sector), bytes(r->count), to);
    if (first < last)
        memcpy(to + bytes(first - r->sector), c->staged + bytes(first - cache->staged_sector),
               (size_t)bytes(last - first));
    for (first = sectors_next(&cache->dirty, r->sector); first < end;
         first = sectors_next(&cache->dirty, last)) {
        last = sectors_next_absent(&cache->dirty, first, end);
        memcpy(to + bytes(first - r->sector), c->cached + bytes(first),
               (size_t)bytes(last - first));
    }
}

static void medium_write(void *context, const struct request *r, int64_t count)
{
    struct content *c = context;

    store_write(&c->media, bytes(r->sector), bytes(count), r->data);
}

static void medium_cache(void *context, const struct request *r)
{
    struct content *c = context;

    memcpy(c->cached + bytes(r->sector), r->data, (size_t)bytes(r->count));
}

/* Pages that hold nothing dirty any more give their memory back. */
static void medium_drop(void *context, int64_t sector, int64_t count)
{
    struct content *c = context;
    const int64_t page = STORE_PAGE >> SECTOR_SHIFT;
    int64_t first = sector / page * page;
    int64_t end = smaller((sector + count + page - 1) / page * page, c->cache->dirty.size);

    if (sectors_within(&c->cache->dirty, first, sector - first) > 0)
        first += page;
    if (sectors_within(&c->cache->dirty, sector + count, end - sector - count) > 0)
        end -= page;
    if (first < end)
        store_discard(c->cached + bytes(first), bytes(end - first));
}

static void medium_stage(void *context, int64_t sector, int64_t count)
{
    struct content *c = context;

    memcpy(c->staged, c->cached + bytes(sector), (size_t)bytes(count));
    medium_drop(c, sector, count);
}

static void medium_unstage(void *context, int64_t count)
{
    struct content *c = context;

    if (count > 0)
        store_write(&c->media, bytes(c->cache->staged_sector), bytes(count), c->staged);
}

static void medium_restage(void *context, int64_t passed)
{
    struct content *c = context;
    const struct cache *cache = c->cache;
    int64_t end = cache->staged_sector + cache->staged_count;

    for (int64_t s = cache->staged_sector + passed; s < end;) {
        int64_t newer = smaller(sectors_next(&cache->dirty, s), end);

        memcpy(c->cached + bytes(s), c->staged + bytes(s - cache->staged_sector),
               (size_t)bytes(newer - s));
        s = sectors_next_absent(&cache->dirty, newer, end);
    }
}

static void medium_keep(void *context, int64_t sector, int64_t count)
{
    struct content *c = context;

    store_write(&c->media, bytes(sector), bytes(count), c->cached + bytes(sector));
}

bool content_init(struct content *c, int64_t size, int64_t merge_bytes,
                  const struct cache *cache)
{
    void *cached;

    memset(c, 0, sizeof *c);
    c->size = size;
    c->cache = cache;
    c->medium = (struct medium){
        .context = c,
        .read = medium_read,
        .write = medium_write,
        .cache = medium_cache,
        .stage = medium_stage,
        .unstage = medium_unstage,
        .keep = medium_keep,
        .drop = medium_drop,
        .restage = medium_restage,
    };
    cached = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    c->cached = cached == MAP_FAILED ? NULL : cached;
    c->staged = malloc((size_t)merge_bytes);
    if (store_init(&c->media, size) && c->cached != NULL && c->staged != NULL)
        return true;
    content_free(c);
    return false;
}

void content_free(struct content *c)
{
    if (c->cached != NULL)
        munmap(c->cached, (size_t)c->size);
    free(c->staged);
    store_free(&c->media);
}
