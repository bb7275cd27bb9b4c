#include "seek.h"

#include <math.h>

/*
 * Data sheets publish three figures: one cylinder, the average, full stroke.
 * t(x) = track + root * sqrt(x) + linear * x, with x the distance as a share of
 * the longest, meets all three: between random places the mean of sqrt(x) is
 * 8/15 and that of x is 1/3, and t(1) is the full stroke. The square root is the
 * arm accelerating and braking, the linear part its coasting. t() rises
 * everywhere as long as root >= 0 and root/2 + linear >= 0 (params_check).
 */
void seek_init(struct seek *s, const struct params *p)
{
    double span = (double)(p->seek_full_ns - p->seek_track_ns);
    double mean = (double)(p->seek_average_ns - p->seek_track_ns);

    s->track_ns = p->seek_track_ns;
    s->full_cylinders = p->cylinders - 1;
    s->root = 5 * (mean - span / 3);
    s->linear = span - s->root;
}

int64_t seek_time(const struct seek *s, int64_t cylinders)
{
    double x;

    if (cylinders < 0)
        cylinders = -cylinders;
    if (cylinders == 0)
        return 0;
    if (s->full_cylinders <= 1)
        return s->track_ns;
    x = (double)(cylinders - 1) / (double)(s->full_cylinders - 1);
    return s->track_ns + (int64_t)(s->root * sqrt(x) + s->linear * x);
}
