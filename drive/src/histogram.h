/* Histogram: how late, in logarithmic buckets 1/16 of an octave wide. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SHIFT 4
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SHIFT) << HISTOGRAM_SHIFT)

struct histogram {
    uint64_t count;
    int64_t maximum;
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, int64_t value);

/* The value that this share of all values does not exceed (to one bucket's width). */
int64_t histogram_quantile(const struct histogram *h, double share);

#endif
