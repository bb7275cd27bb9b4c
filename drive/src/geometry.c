#include "geometry.h"

void geometry_init(struct geometry *g, const struct params *p)
{
    int64_t sector = 0;

    g->revolution_ns = params_revolution_ns(p);
    g->heads = p->heads;
    g->cylinders = p->cylinders;
    g->track_skew_ns = p->track_skew_ns;
    g->cylinder_skew_ns = p->cylinder_skew_ns;
    g->zones = p->zones;
    for (int64_t z = 0; z < p->zones; z++) {
        int64_t first = p->cylinders * z / p->zones;
        int64_t next = p->cylinders * (z + 1) / p->zones;

        g->zone[z].first_sector = sector;
        g->zone[z].first_cylinder = first;
        g->zone[z].sectors_per_track = p->zone_sectors[z];
        sector += (next - first) * p->heads * p->zone_sectors[z];
    }
    g->sectors = sector;
}

struct place geometry_locate(const struct geometry *g, int64_t sector)
{
    const struct zone *zone = &g->zone[0];
    struct place at;
    int64_t track;

    for (int64_t z = 1; z < g->zones && g->zone[z].first_sector <= sector; z++)
        zone = &g->zone[z];
    sector -= zone->first_sector;
    track = sector / zone->sectors_per_track;
    at.cylinder = zone->first_cylinder + track / g->heads;
    at.head = track % g->heads;
    at.sector = sector % zone->sectors_per_track;
    at.sectors_per_track = zone->sectors_per_track;
    return at;
}

int64_t geometry_angle(const struct geometry *g, const struct place *at)
{
    /* Each crossing on the way from sector 0 to this track has turned it by one skew. */
    int64_t switches = at->cylinder * (g->heads - 1) + at->head;
    int64_t skew = switches * g->track_skew_ns + at->cylinder * g->cylinder_skew_ns;

    return (skew + at->sector * g->revolution_ns / at->sectors_per_track) % g->revolution_ns;
}

int64_t geometry_wait(const struct geometry *g, const struct place *at, int64_t now)
{
    int64_t wait = geometry_angle(g, at) - now % g->revolution_ns;

    return wait < 0 ? wait + g->revolution_ns : wait;
}

int64_t geometry_pass(const struct geometry *g, int64_t sectors_per_track, int64_t from, int64_t to)
{
    return to * g->revolution_ns / sectors_per_track - from * g->revolution_ns / sectors_per_track;
}
