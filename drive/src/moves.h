/*
 * Moves: bytes that a drive owes its media and its cache, in order. To copy takes
 * time that the host must not be kept waiting for: its request is answered first.
 * Nobody may look at the content before moves_all.
 */
#ifndef MOVES_H
#define MOVES_H

#include "image.h"

#define MOVES_MAX 256 /* pending; more are done at once */

/* A copy to the image at an offset, or to memory; without a source, memory given back. */
struct move {
    int64_t offset; /* of the image, if to is NULL */
    unsigned char *to;
    const unsigned char *from;
    int64_t length;
};

struct moves {
    struct image *image;
    struct move move[MOVES_MAX];
    uint64_t added; /* since the beginning; number n is in move[n % MOVES_MAX] */
    uint64_t done;
};

void moves_init(struct moves *moves, struct image *image);

/* What these are given holds still until done is what added is after the call. */
void moves_write(struct moves *moves, int64_t offset, int64_t length, const void *from);
void moves_copy(struct moves *moves, void *to, const void *from, int64_t length);
void moves_discard(struct moves *moves, void *at, int64_t length);

/* Do a part of the oldest, at most so many bytes (IMAGE_PAGE or more). */
void moves_some(struct moves *moves, int64_t length);
void moves_all(struct moves *moves);

static inline bool moves_pending(const struct moves *moves)
{
    return moves->done < moves->added;
}

#endif
