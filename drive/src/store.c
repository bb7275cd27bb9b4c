#include "store.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static unsigned char *map(int64_t size)
{
    void *at = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

void store_discard(void *at, int64_t length)
{
    /* Pages may be locked in memory; kernels before 5.18 refuse those. */
    if (madvise(at, (size_t)length, MADV_DONTNEED_LOCKED) != 0 &&
        madvise(at, (size_t)length, MADV_DONTNEED) != 0)
        memset(at, 0, (size_t)length);
}

bool store_init(struct store *s, int64_t size)
{
    memset(s, 0, sizeof *s);
    s->size = size;
    s->base = map(size);
    s->overlay = map(size);
    if (s->base != NULL && s->overlay != NULL && sectors_init(&s->written, size / STORE_PAGE) &&
        sectors_init(&s->changed, size / STORE_PAGE))
        return true;
    store_free(s);
    return false;
}

void store_free(struct store *s)
{
    if (s->base != NULL)
        munmap(s->base, (size_t)s->size);
    if (s->overlay != NULL)
        munmap(s->overlay, (size_t)s->size);
    sectors_free(&s->written);
    sectors_free(&s->changed);
    memset(s, 0, sizeof *s);
}

/* How far from offset on, at most to end, the content is in one and the same map. */
static int64_t run_end(const struct store *s, int64_t offset, int64_t end,
                       unsigned char **where)
{
    int64_t page = offset / STORE_PAGE;
    int64_t pages = (end + STORE_PAGE - 1) / STORE_PAGE;
    int64_t stop = s->snapshot ? sectors_next(&s->changed, page) : pages;

    if (stop == page) {
        *where = s->overlay + offset;
        stop = sectors_next_absent(&s->changed, page, pages);
    } else {
        *where = s->base + offset;
    }
    return stop * STORE_PAGE < end ? stop * STORE_PAGE : end;
}

void store_read(const struct store *s, int64_t offset, int64_t length, void *to)
{
    int64_t end = offset + length;

    while (offset < end) {
        unsigned char *where;
        int64_t stop = run_end(s, offset, end, &where);

        memcpy(to, where, (size_t)(stop - offset));
        to = (unsigned char *)to + (stop - offset);
        offset = stop;
    }
}

int store_pieces(const struct store *s, int64_t offset, int64_t length, struct iovec *piece,
                 int limit)
{
    int64_t end = offset + length;
    int used = 0;

    while (offset < end) {
        unsigned char *where;
        int64_t stop = run_end(s, offset, end, &where);

        if (used == limit)
            return -1;
        piece[used++] = (struct iovec){where, (size_t)(stop - offset)};
        offset = stop;
    }
    return used;
}

/* A page written in part only begins as the base has it. */
static void begin_overlay_page(struct store *s, int64_t page)
{
    if (sectors_within(&s->changed, page, 1) == 0)
        memcpy(s->overlay + page * STORE_PAGE, s->base + page * STORE_PAGE, STORE_PAGE);
}

void store_write(struct store *s, int64_t offset, int64_t length, const void *from)
{
    int64_t first = offset / STORE_PAGE;
    int64_t last = (offset + length - 1) / STORE_PAGE;

    if (!s->snapshot) {
        memcpy(s->base + offset, from, (size_t)length);
        sectors_add(&s->written, first, last - first + 1);
        return;
    }
    if (offset % STORE_PAGE != 0)
        begin_overlay_page(s, first);
    if ((offset + length) % STORE_PAGE != 0)
        begin_overlay_page(s, last);
    memcpy(s->overlay + offset, from, (size_t)length);
    sectors_add(&s->changed, first, last - first + 1);
}

void store_snapshot(struct store *s)
{
    int64_t first = sectors_next(&s->changed, 0);

    while (first < s->changed.size) {
        int64_t end = sectors_next_absent(&s->changed, first, s->changed.size);

        memcpy(s->base + first * STORE_PAGE, s->overlay + first * STORE_PAGE,
               (size_t)((end - first) * STORE_PAGE));
        sectors_add(&s->written, first, end - first);
        first = sectors_next(&s->changed, end);
    }
    s->snapshot = true;
    store_restore(s);
}

bool store_restore(struct store *s)
{
    if (!s->snapshot)
        return false;
    if (s->changed.members > 0)
        store_discard(s->overlay, s->size);
    sectors_clear(&s->changed);
    return true;
}

int64_t store_base_bytes(const struct store *s)
{
    return s->written.members * STORE_PAGE;
}

int64_t store_overlay_bytes(const struct store *s)
{
    return s->changed.members * STORE_PAGE;
}
