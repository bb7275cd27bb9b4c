/* Seek: time for the arm to move over a distance. */
#ifndef SEEK_H
#define SEEK_H

#include "params.h"

struct seek {
    int64_t track_ns;
    int64_t full_cylinders; /* longest distance */
    double root;            /* of the square root of the distance, as a share of the longest */
    double linear;
};

void seek_init(struct seek *s, const struct params *p);
int64_t seek_time(const struct seek *s, int64_t cylinders);

#endif
