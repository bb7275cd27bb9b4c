#include "cache.h"

bool cache_init(struct cache *c, const struct params *p, int64_t sectors)
{
    c->capacity = p->cache_bytes / SECTOR_BYTES;
    c->staged_sector = 0;
    c->staged_count = 0;
    return sectors_init(&c->dirty, sectors);
}

void cache_free(struct cache *c)
{
    sectors_free(&c->dirty);
}

int64_t cache_used(const struct cache *c)
{
    return c->dirty.members + c->staged_count;
}

bool cache_has_room(const struct cache *c, int64_t sector, int64_t count)
{
    return cache_used(c) + count - sectors_within(&c->dirty, sector, count) <= c->capacity;
}

bool cache_holds(const struct cache *c, int64_t sector, int64_t count)
{
    int64_t end = sector + count;

    while (sector < end) {
        int64_t absent = sectors_next_absent(&c->dirty, sector, end);

        if (absent == end)
            return true;
        if (absent < c->staged_sector || absent >= c->staged_sector + c->staged_count)
            return false;
        sector = c->staged_sector + c->staged_count;
    }
    return true;
}

void cache_stage(struct cache *c, int64_t head, int64_t limit)
{
    int64_t first = sectors_next(&c->dirty, head < c->dirty.size ? head : 0);
    int64_t end;

    if (first == c->dirty.size)
        first = sectors_next(&c->dirty, 0);
    end = first + limit < c->dirty.size ? first + limit : c->dirty.size;
    c->staged_sector = first;
    c->staged_count = sectors_next_absent(&c->dirty, first, end) - first;
    sectors_remove(&c->dirty, c->staged_sector, c->staged_count);
}

void cache_unstage(struct cache *c)
{
    c->staged_count = 0;
}
