/* Mechanism: the arm, the heads and the platters turning below them; or flash instead. */
#ifndef MECHANISM_H
#define MECHANISM_H

#include "geometry.h"
#include "seek.h"

struct mechanism {
    struct geometry geometry;
    struct seek seek;
    int64_t head_switch_ns;
    int64_t write_settle_ns;
    int64_t cylinder; /* where the heads are */
    int64_t head;
    bool flash;
    int64_t flash_sectors;
    int64_t flash_read_ns;
    int64_t flash_program_ns;
    int64_t flash_bytes_per_s;
};

/* One access to the media, planned from start to end. */
struct motion {
    int64_t sector;
    int64_t count;
    bool write;
    int64_t start;
    int64_t seek_ns;     /* arm, settling, head switch */
    int64_t rotate_ns;   /* waiting for the first sector */
    int64_t transfer_ns; /* sectors passing, with the skews on the way */
    int64_t end;
};

void mechanism_init(struct mechanism *m, const struct params *p);

int64_t mechanism_sectors(const struct mechanism *m);

struct motion mechanism_plan(const struct mechanism *m, int64_t sector, int64_t count, bool write,
                             int64_t start);

/* The heads stay at the last sector of what they did. */
void mechanism_move(struct mechanism *m, int64_t sector);

/* Sectors of a planned access that have passed completely by that time. */
int64_t mechanism_passed(const struct mechanism *m, const struct motion *motion, int64_t now);

/*
 * Let count sectors pass, beginning at start with the first of them under the
 * head, or, if crossing, with the head at the end of the track before it. Stops
 * at limit; returns the sectors that have passed and when the last one had.
 */
int64_t mechanism_walk(const struct mechanism *m, int64_t sector, int64_t count, bool crossing,
                       int64_t start, int64_t limit, int64_t *end);

#endif
