/* Read-ahead: segments of what passed under an otherwise idle head. */
#ifndef READAHEAD_H
#define READAHEAD_H

#include "mechanism.h"

#define SEGMENTS_MAX 64

struct segment {
    int64_t first;
    int64_t end;
    uint64_t used; /* for replacing the one used longest ago */
};

/*
 * After a read the heads go on reading. What they have passed is a function of
 * time, computed when somebody asks; nothing happens per sector.
 */
struct readahead {
    const struct mechanism *mechanism;
    int64_t segments;
    int64_t segment_sectors;
    int64_t sectors; /* of the drive as the host sees it */
    uint64_t clock;
    struct segment segment[SEGMENTS_MAX];

    bool active; /* the heads are reading into segment[current] */
    int64_t current;
    int64_t from; /* the first sector not yet passed at since */
    int64_t since;
    int64_t limit; /* they rest there */
};

enum readahead_answer { READAHEAD_MISS, READAHEAD_HIT, READAHEAD_COMING };

void readahead_init(struct readahead *r, const struct params *p, const struct mechanism *m,
                    int64_t sectors);

/* A read of these sectors from the media ended now. */
void readahead_start(struct readahead *r, int64_t sector, int64_t count, int64_t now);

/* The heads are wanted elsewhere; returns the sector behind the last one passed, or -1. */
int64_t readahead_stop(struct readahead *r, int64_t now);

/* Held; or passing under the head now and all there at ready; or neither. */
enum readahead_answer readahead_ask(struct readahead *r, int64_t sector, int64_t count, int64_t now,
                                    int64_t *ready);

/* These sectors have been written. */
void readahead_forget(struct readahead *r, int64_t sector, int64_t count, int64_t now);

void readahead_clear(struct readahead *r);

#endif
