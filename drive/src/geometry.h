/* Geometry: where a sector lies, and when it passes under the head. */
#ifndef GEOMETRY_H
#define GEOMETRY_H

#include "params.h"

struct zone {
    int64_t first_sector;
    int64_t first_cylinder;
    int64_t sectors_per_track;
};

struct place {
    int64_t cylinder;
    int64_t head;
    int64_t sector; /* within the track */
    int64_t sectors_per_track;
};

struct geometry {
    int64_t revolution_ns;
    int64_t heads;
    int64_t cylinders;
    int64_t sectors; /* of the whole drive */
    int64_t track_skew_ns;
    int64_t cylinder_skew_ns;
    int64_t zones;
    struct zone zone[ZONES_MAX];
};

void geometry_init(struct geometry *g, const struct params *p);
struct place geometry_locate(const struct geometry *g, int64_t sector);

/* The moment in a revolution, in ns, at which this place comes under the head. */
int64_t geometry_angle(const struct geometry *g, const struct place *at);

/* Time from now until this place next comes under the head: [0, revolution). */
int64_t geometry_wait(const struct geometry *g, const struct place *at, int64_t now);

/* Time for the sectors [from, to) of one track to pass. */
int64_t geometry_pass(const struct geometry *g, int64_t sectors_per_track, int64_t from,
                      int64_t to);

#endif
