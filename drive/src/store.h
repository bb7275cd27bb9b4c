/*
 * Store: the content of the media, in memory. A base and, after a snapshot, an
 * overlay of the 4 kB pages changed since; only pages ever written use memory.
 */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "sectors.h"

#define STORE_PAGE 4096

struct store {
    int64_t size; /* bytes, a multiple of STORE_PAGE */
    unsigned char *base;
    unsigned char *overlay;
    bool snapshot;          /* writes go to the overlay */
    struct sectors written; /* pages of the base that have been written */
    struct sectors changed; /* pages that the overlay holds */
};

bool store_init(struct store *s, int64_t size);
void store_free(struct store *s);

void store_read(const struct store *s, int64_t offset, int64_t length, void *to);
void store_write(struct store *s, int64_t offset, int64_t length, const void *from);

/*
 * Where this range is, in pieces, until the next write, snapshot or restore.
 * Returns the pieces used, or -1 if there are more than limit.
 */
int store_pieces(const struct store *s, int64_t offset, int64_t length, struct iovec *piece,
                 int limit);

/* The present content becomes what restore returns to. */
void store_snapshot(struct store *s);

/* False without a snapshot. */
bool store_restore(struct store *s);

int64_t store_base_bytes(const struct store *s);
int64_t store_overlay_bytes(const struct store *s);

/* Give the memory back; it reads as zeroes from then on. at is aligned to a page. */
void store_discard(void *at, int64_t length);

#endif
