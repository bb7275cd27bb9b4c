#include "image.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static void *map(int64_t size)
{
    void *at = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

void *image_map(int64_t size)
{
    void *at = map(size);

    if (at != NULL)
        madvise(at, (size_t)size, MADV_NOHUGEPAGE);
    return at;
}

void image_discard(void *at, int64_t length)
{
    /* Pages may be locked in memory; kernels before 5.18 refuse those. */
    if (madvise(at, (size_t)length, MADV_DONTNEED_LOCKED) != 0 &&
        madvise(at, (size_t)length, MADV_DONTNEED) != 0)
        memset(at, 0, (size_t)length);
}

bool image_init(struct image *image, int64_t size)
{
    memset(image, 0, sizeof *image);
    image->size = size;
    image->base = map(size); /* mostly written while nothing is timed */
    image->overlay = image_map(size);
    if (image->base != NULL && image->overlay != NULL &&
        sectors_init(&image->written, size / IMAGE_PAGE) &&
        sectors_init(&image->changed, size / IMAGE_PAGE))
        return true;
    image_free(image);
    return false;
}

void image_free(struct image *image)
{
    if (image->base != NULL)
        munmap(image->base, (size_t)image->size);
    if (image->overlay != NULL)
        munmap(image->overlay, (size_t)image->size);
    sectors_free(&image->written);
    sectors_free(&image->changed);
    memset(image, 0, sizeof *image);
}

/* How far from offset on, at most to end, the content is in one and the same map. */
static int64_t run_end(const struct image *image, int64_t offset, int64_t end,
                       unsigned char **where)
{
    int64_t page = offset / IMAGE_PAGE;
    int64_t pages = (end + IMAGE_PAGE - 1) / IMAGE_PAGE;
    int64_t stop = image->snapshot ? sectors_next(&image->changed, page) : pages;

    if (stop == page) {
        *where = image->overlay + offset;
        stop = sectors_next_absent(&image->changed, page, pages);
    } else {
        *where = image->base + offset;
    }
    return stop * IMAGE_PAGE < end ? stop * IMAGE_PAGE : end;
}

void image_read(const struct image *image, int64_t offset, int64_t length, void *to)
{
    int64_t end = offset + length;

    while (offset < end) {
        unsigned char *where;
        int64_t stop = run_end(image, offset, end, &where);

        memcpy(to, where, (size_t)(stop - offset));
        to = (unsigned char *)to + (stop - offset);
        offset = stop;
    }
}

int image_pieces(const struct image *image, int64_t offset, int64_t length, struct iovec *piece,
                 int limit)
{
    int64_t end = offset + length;
    int used = 0;

    while (offset < end) {
        unsigned char *where;
        int64_t stop = run_end(image, offset, end, &where);

        if (used == limit)
            return -1;
        piece[used++] = (struct iovec){where, (size_t)(stop - offset)};
        offset = stop;
    }
    return used;
}

/* A page written in part only begins as the base has it. */
static void begin_overlay_page(struct image *image, int64_t page)
{
    if (sectors_within(&image->changed, page, 1) == 0)
        memcpy(image->overlay + page * IMAGE_PAGE, image->base + page * IMAGE_PAGE, IMAGE_PAGE);
}

void image_write(struct image *image, int64_t offset, int64_t length, const void *from)
{
    int64_t first = offset / IMAGE_PAGE;
    int64_t last = (offset + length - 1) / IMAGE_PAGE;

    if (!image->snapshot) {
        memcpy(image->base + offset, from, (size_t)length);
        sectors_add(&image->written, first, last - first + 1);
        return;
    }
    if (offset % IMAGE_PAGE != 0)
        begin_overlay_page(image, first);
    if ((offset + length) % IMAGE_PAGE != 0)
        begin_overlay_page(image, last);
    memcpy(image->overlay + offset, from, (size_t)length);
    sectors_add(&image->changed, first, last - first + 1);
}

void image_snapshot(struct image *image)
{
    int64_t first = sectors_next(&image->changed, 0);

    while (first < image->changed.size) {
        int64_t end = sectors_next_absent(&image->changed, first, image->changed.size);

        memcpy(image->base + first * IMAGE_PAGE, image->overlay + first * IMAGE_PAGE,
               (size_t)((end - first) * IMAGE_PAGE));
        sectors_add(&image->written, first, end - first);
        first = sectors_next(&image->changed, end);
    }
    image->snapshot = true;
    image_restore(image);
}

bool image_restore(struct image *image)
{
    if (!image->snapshot)
        return false;
    if (image->changed.members > 0)
        image_discard(image->overlay, image->size);
    sectors_clear(&image->changed);
    return true;
}

int64_t image_base_bytes(const struct image *image)
{
    return image->written.members * IMAGE_PAGE;
}

int64_t image_overlay_bytes(const struct image *image)
{
    return image->changed.members * IMAGE_PAGE;
}
