/* Sectors: a set of sector numbers, as a bitmap with summaries above it. */
#ifndef SECTORS_H
#define SECTORS_H

#include <stdbool.h>
#include <stdint.h>

#define SECTORS_LEVELS 6

struct sectors {
    int64_t size;    /* sector numbers are in [0, size) */
    int64_t members; /* how many are in the set */
    int levels;
    uint64_t *level[SECTORS_LEVELS]; /* a bit of level n+1 stands for a word of level n */
};

bool sectors_init(struct sectors *s, int64_t size);
void sectors_free(struct sectors *s);
void sectors_clear(struct sectors *s);

/* Both return how many sectors changed. */
int64_t sectors_add(struct sectors *s, int64_t first, int64_t count);
int64_t sectors_remove(struct sectors *s, int64_t first, int64_t count);

/* First member at or after from; size if there is none. */
int64_t sectors_next(const struct sectors *s, int64_t from);

/* First number in [from, limit) that is no member; limit if there is none. */
int64_t sectors_next_absent(const struct sectors *s, int64_t from, int64_t limit);

/* How many of the range are members. */
int64_t sectors_within(const struct sectors *s, int64_t first, int64_t count);

#endif
