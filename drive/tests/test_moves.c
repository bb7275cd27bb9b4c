/*
 * What a drive owes its media and its cache: the host is answered first, and
 * whoever looks at the content finds it as if all had been moved at once.
 */
#include "rig.h"

#define SIZE (INT64_C(64) << 20)
#define LARGE 2048 /* sectors: 1 MiB */

static struct request *lasting(int64_t sector, int64_t count, int fill)
{
    struct request *r = rig_request(REQUEST_WRITE, sector, count, fill);

    r->lasting = true;
    return r;
}

/* The media as they are, with nothing moved for the sake of looking. */
static int as_it_is(const struct rig *rig, int64_t sector)
{
    unsigned char byte;

    image_read(&rig->data.image, sector * SECTOR_BYTES, 1, &byte);
    return byte;
}

/* The large write is complete, and so is the small one with it, before a byte is copied. */
static void test_answer_comes_before_the_copy(bool write_cache)
{
    static const char *const assignments[] = {"constant_latency_ns=1000000", NULL};
    struct rig rig;
    struct request *large = lasting(0, LARGE, 1);
    struct request *small = lasting(LARGE, 1, 2);

    rig_init(&rig, SIZE, write_cache, write_cache ? NULL : assignments);
    rig_submit(&rig, large);
    rig_submit(&rig, small);
    rig_finish(&rig);
    CHECK(moves_pending(&rig.data.moves), "copied before the answer");
    CHECK_EQUAL(as_it_is(&rig, 0), 0);
    rig_rest(&rig);
    CHECK_EQUAL(rig_media(&rig, 0), 1);
    CHECK_EQUAL(rig_media(&rig, LARGE - 1), 1);
    CHECK_EQUAL(rig_media(&rig, LARGE), 2);
    CHECK(!moves_pending(&rig.data.moves), "looked at before it was copied");
    rig_free(&rig);
}

/* Destaging copies twice, and gives memory back; none of it holds up what comes due. */
static void test_destaging_is_put_off(void)
{
    struct rig rig;

    rig_init(&rig, SIZE, true, NULL);
    rig_submit(&rig, lasting(8, 16, 3));
    rig_finish(&rig);
    rig_rest(&rig);
    CHECK(rig.model.counters.destages > 0, "nothing was destaged");
    /* To the cache, to the write channel, memory back, to the media. */
    CHECK_EQUAL(rig.data.moves.added, 4);
    CHECK_EQUAL(rig.data.moves.done, 0);
    CHECK_EQUAL(rig_media(&rig, 8), 3);
    CHECK_EQUAL(rig_media(&rig, 23), 3);
    rig_free(&rig);
}

static void test_reads_find_what_is_owed(void)
{
    struct rig rig;
    struct request *read = rig_request(REQUEST_READ, 0, LARGE, 0);

    rig_init(&rig, SIZE, false, NULL);
    rig_submit(&rig, lasting(0, LARGE, 4));
    rig_finish(&rig);
    CHECK_EQUAL(as_it_is(&rig, LARGE - 1), 0);
    rig_submit(&rig, read);
    rig_finish(&rig);
    for (int64_t i = 0; i < LARGE; i++)
        CHECK_EQUAL(((unsigned char *)read->data)[i * SECTOR_BYTES], 4);
    rig_free(&rig);
}

/* A part ends with a page, and is no longer than asked for. */
static void test_parts(void)
{
    struct rig rig;
    int64_t parts = 0;

    rig_init(&rig, SIZE, false, NULL);
    rig_submit(&rig, lasting(3, LARGE, 5));
    rig_finish(&rig);
    while (moves_pending(&rig.data.moves)) {
        int64_t before = rig.data.moves.move[0].offset;

        moves_some(&rig.data.moves, 4 * IMAGE_PAGE);
        parts++;
        CHECK(rig.data.moves.move[0].offset - before <= 4 * IMAGE_PAGE, "a longer part");
        if (moves_pending(&rig.data.moves))
            CHECK_EQUAL(rig.data.moves.move[0].offset % IMAGE_PAGE, 0);
    }
    CHECK_EQUAL(parts, LARGE * SECTOR_BYTES / (4 * IMAGE_PAGE) + 1);
    for (int64_t i = 0; i < LARGE; i++)
        CHECK_EQUAL(rig_media(&rig, 3 + i), 5);
    CHECK_EQUAL(rig_media(&rig, 2), 0);
    CHECK_EQUAL(rig_media(&rig, 3 + LARGE), 0);
    rig_free(&rig);
}

/* More than there is room for: the oldest are done, in order. */
static void test_room(void)
{
    struct rig rig;

    rig_init(&rig, SIZE, false, NULL);
    for (int i = 0; i < 3 * MOVES_MAX; i++) {
        rig_submit(&rig, lasting(8, 8, i % 251));
        rig_finish(&rig);
        CHECK(rig.data.moves.added - rig.data.moves.done <= MOVES_MAX, "no limit");
    }
    CHECK_EQUAL(rig.data.moves.added, 3 * MOVES_MAX);
    CHECK_EQUAL(rig_media(&rig, 8), (3 * MOVES_MAX - 1) % 251);
    rig_free(&rig);
}

int main(void)
{
    test_answer_comes_before_the_copy(false);
    test_answer_comes_before_the_copy(true);
    test_destaging_is_put_off();
    test_reads_find_what_is_owed();
    test_parts();
    test_room();
    return 0;
}
