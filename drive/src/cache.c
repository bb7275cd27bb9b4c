#include "cache.h"

#include <stdlib.h>

bool cache_init(struct cache *c, const struct params *p, int64_t sectors)
{
    *c = (struct cache){0};
    cache_adopt(c, p);
    /* Takes memory only where something is written. */
    c->writer = calloc((size_t)sectors, sizeof *c->writer);
    return sectors_init(&c->dirty, sectors) && c->writer != NULL;
}

void cache_free(struct cache *c)
{
    sectors_free(&c->dirty);
    free(c->writer);
}

void cache_adopt(struct cache *c, const struct params *p)
{
    c->capacity = p->cache_bytes / SECTOR_BYTES;
    c->units = p->units;
}

int64_t cache_used(const struct cache *c)
{
    return c->dirty.members + c->staged_sectors;
}

bool cache_has_room(const struct cache *c, int64_t count, int64_t reserved)
{
    return cache_used(c) + reserved + count <= c->capacity;
}

void cache_take(struct cache *c, int64_t sector, int64_t count)
{
    c->writes++;
    for (int64_t i = 0; i < count; i++)
        c->writer[sector + i] = c->writes;
    sectors_add(&c->dirty, sector, count);
}

int64_t cache_piece_end(const struct cache *c, int64_t sector)
{
    int64_t end = sector + 1;

    while (end < c->dirty.size && c->writer[end] == c->writer[sector])
        end++;
    return sectors_next_absent(&c->dirty, sector, end);
}

int64_t cache_pieces(const struct cache *c, uint64_t until)
{
    int64_t pieces = 0;

    for (int64_t s = sectors_next(&c->dirty, 0); s < c->dirty.size;
         s = sectors_next(&c->dirty, cache_piece_end(c, s)))
        pieces += c->writer[s] <= until;
    return pieces;
}

/* End of the staged extent that holds the sector; the sector itself if none does. */
static int64_t staged_end(const struct cache *c, int64_t sector)
{
    for (int64_t unit = 0; unit < c->units; unit++) {
        const struct staged *s = &c->staged[unit];

        if (sector >= s->sector && sector < s->sector + s->count)
            return s->sector + s->count;
    }
    return sector;
}

bool cache_holds(const struct cache *c, int64_t sector, int64_t count)
{
    int64_t end = sector + count;

    while (sector < end) {
        int64_t absent = sectors_next_absent(&c->dirty, sector, end);

        if (absent == end)
            return true;
        sector = staged_end(c, absent);
        if (sector == absent)
            return false;
    }
    return true;
}

/* The same without going around: size of the set if there is none. */
static int64_t next_above(const struct cache *c, const struct stripes *s, int64_t unit,
                          int64_t from)
{
    int64_t sector = sectors_next(&c->dirty, from);

    while (sector < c->dirty.size && stripes_unit(s, sector) != unit) {
        int64_t local = stripes_local(s, unit, sector);

        from = stripes_host(s, unit, local); /* its next chunk */
        sector = from < c->dirty.size ? sectors_next(&c->dirty, from) : c->dirty.size;
    }
    return sector;
}

int64_t cache_next(const struct cache *c, const struct stripes *s, int64_t unit, int64_t head)
{
    int64_t sector;

    if (c->dirty.members == 0)
        return -1;
    sector = next_above(c, s, unit, head < c->dirty.size ? head : 0);
    if (sector == c->dirty.size)
        sector = next_above(c, s, unit, 0);
    return sector < c->dirty.size ? sector : -1;
}

void cache_stage(struct cache *c, const struct stripes *s, int64_t unit, int64_t head,
                 int64_t limit)
{
    struct staged *staged = &c->staged[unit];
    int64_t first = cache_next(c, s, unit, head);
    int64_t end;

    limit = stripes_run(s, stripes_local(s, unit, first), limit);
    end = first + limit < c->dirty.size ? first + limit : c->dirty.size;
    staged->sector = first;
    staged->count = sectors_next_absent(&c->dirty, first, end) - first;
    c->staged_sectors += staged->count;
    sectors_remove(&c->dirty, staged->sector, staged->count);
}

void cache_unstage(struct cache *c, int64_t unit)
{
    c->staged_sectors -= c->staged[unit].count;
    c->staged[unit].count = 0;
}
