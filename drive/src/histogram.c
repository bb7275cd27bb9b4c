#include "histogram.h"

#define STEPS (1 << HISTOGRAM_SHIFT)

/* Below 16 a bucket a value; above, 16 buckets an octave: at most 6% wide. */
static int bucket_of(int64_t value)
{
    int octave;

    if (value < STEPS)
        return value < 0 ? 0 : (int)value;
    octave = 63 - __builtin_clzll((unsigned long long)value) - HISTOGRAM_SHIFT;
    return ((octave + 1) << HISTOGRAM_SHIFT) + (int)((value >> octave) - STEPS);
}

static int64_t top_of(int bucket)
{
    int octave = (bucket >> HISTOGRAM_SHIFT) - 1;

    if (octave < 0)
        return bucket;
    return ((int64_t)(STEPS + bucket % STEPS + 1) << octave) - 1;
}

void histogram_add(struct histogram *h, int64_t value)
{
    h->count++;
    if (value > h->maximum)
        h->maximum = value;
    h->bucket[bucket_of(value)]++;
}

int64_t histogram_quantile(const struct histogram *h, double share)
{
    uint64_t seen = 0;

    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen > 0 && (double)seen >= share * (double)h->count)
            return top_of(i) < h->maximum ? top_of(i) : h->maximum;
    }
    return 0;
}
