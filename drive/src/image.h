/*
 * Image: the content of the media, in memory. A base and, after a snapshot, an
 * overlay of the 4 kB pages changed since; only pages ever written use memory.
 */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "sectors.h"

#define IMAGE_PAGE 4096

struct image {
    int64_t size; /* bytes, a multiple of IMAGE_PAGE */
    unsigned char *base;
    unsigned char *overlay;
    bool snapshot;          /* writes go to the overlay */
    struct sectors written; /* pages of the base that have been written */
    struct sectors changed; /* pages that the overlay holds */
};

bool image_init(struct image *image, int64_t size);
void image_free(struct image *image);

void image_read(const struct image *image, int64_t offset, int64_t length, void *to);
void image_write(struct image *image, int64_t offset, int64_t length, const void *from);

/*
 * Where this range is, in pieces, until the next write, snapshot or restore.
 * Returns the pieces used, or -1 if there are more than limit.
 */
int image_pieces(const struct image *image, int64_t offset, int64_t length, struct iovec *piece,
                 int limit);

/* The present content becomes what restore returns to. */
void image_snapshot(struct image *image);

/* False without a snapshot. */
bool image_restore(struct image *image);

int64_t image_base_bytes(const struct image *image);
int64_t image_overlay_bytes(const struct image *image);

/*
 * So many bytes that read as zeroes, and use memory where they have been written; or NULL. In
 * small pages: to clear 2 MB for the first 4 kB of them keeps others waiting.
 */
void *image_map(int64_t size);

/* Give the memory back; it reads as zeroes from then on. at is aligned to a page. */
void image_discard(void *at, int64_t length);

#endif
