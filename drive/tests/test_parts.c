/* The parts without a clock: sectors, store, histogram, params, geometry, seek. */
#include "rig.h"

#include "../src/histogram.h"

static void test_sectors(void)
{
    enum { SIZE = 70000 };
    static unsigned char reference[SIZE];
    struct sectors s;
    uint64_t seed = 1;
    int64_t members = 0;

    CHECK(sectors_init(&s, SIZE), "memory");
    for (int i = 0; i < 20000; i++) {
        int64_t first = (int64_t)(rig_random(&seed) % SIZE);
        int64_t count = (int64_t)(rig_random(&seed) % (i % 100 == 0 ? 20000 : 200)) + 1;
        bool add = rig_random(&seed) % 2;
        int64_t changed = 0;
        int64_t within = 0;
        int64_t next;

        if (first + count > SIZE)
            count = SIZE - first;
        for (int64_t n = first; n < first + count; n++)
            within += reference[n];
        CHECK_EQUAL(sectors_within(&s, first, count), within);
        for (int64_t n = first; n < first + count; n++) {
            changed += reference[n] != add;
            reference[n] = add;
        }
        members += add ? changed : -changed;
        CHECK_EQUAL(add ? sectors_add(&s, first, count) : sectors_remove(&s, first, count),
                    changed);
        CHECK_EQUAL(s.members, members);
        first = (int64_t)(rig_random(&seed) % SIZE);
        for (next = first; next < SIZE && !reference[next]; next++)
            ;
        CHECK_EQUAL(sectors_next(&s, first), next);
        for (next = first; next < SIZE && reference[next]; next++)
            ;
        CHECK_EQUAL(sectors_next_absent(&s, first, SIZE), next);
    }
    sectors_clear(&s);
    CHECK_EQUAL(s.members, 0);
    CHECK_EQUAL(sectors_next(&s, 0), SIZE);
    sectors_free(&s);
}

static void test_store(void)
{
    enum { SIZE = 1 << 20 };
    static unsigned char now[SIZE], frozen[SIZE], got[SIZE];
    struct image s;
    uint64_t seed = 2;

    CHECK(image_init(&s, SIZE), "memory");
    CHECK(!image_restore(&s), "restored without a snapshot");
    for (int i = 0; i < 5000; i++) {
        int64_t offset = (int64_t)(rig_random(&seed) % (SIZE / 512)) * 512;
        int64_t length = (int64_t)(rig_random(&seed) % 64 + 1) * 512;
        struct iovec piece[64];
        int pieces;

        if (offset + length > SIZE)
            length = SIZE - offset;
        switch (rig_random(&seed) % 100) {
        case 0:
            image_snapshot(&s);
            memcpy(frozen, now, SIZE);
            CHECK_EQUAL(image_overlay_bytes(&s), 0);
            break;
        case 1:
            if (s.snapshot) {
                CHECK(image_restore(&s), "no snapshot");
                memcpy(now, frozen, SIZE);
                CHECK_EQUAL(image_overlay_bytes(&s), 0);
            }
            break;
        default:
            memset(now + offset, (int)rig_random(&seed), (size_t)length);
            image_write(&s, offset, length, now + offset);
        }
        image_read(&s, 0, SIZE, got);
        CHECK(memcmp(got, now, SIZE) == 0, "content differs after step %d", i);
        pieces = image_pieces(&s, offset, length, piece, 64);
        CHECK(pieces > 0, "too many pieces");
        for (int p = 0; p < pieces; p++) {
            CHECK(memcmp(piece[p].iov_base, now + offset, piece[p].iov_len) == 0, "piece differs");
            offset += (int64_t)piece[p].iov_len;
            length -= (int64_t)piece[p].iov_len;
        }
        CHECK_EQUAL(length, 0);
    }
    image_free(&s);
}

static void test_histogram(void)
{
    static struct histogram h;

    CHECK_EQUAL(histogram_quantile(&h, 0.5), 0);
    for (int64_t i = 1; i <= 100000; i++)
        histogram_add(&h, i * 100);
    CHECK_NEAR(histogram_quantile(&h, 0.5), 5000000, 0.07);
    CHECK_NEAR(histogram_quantile(&h, 0.99), 9900000, 0.07);
    CHECK_EQUAL(h.maximum, 10000000);
    CHECK_EQUAL(histogram_quantile(&h, 1), 10000000);
    histogram_add(&h, INT64_MAX);
    histogram_add(&h, -5);
}

static bool accepts(const char *assignment)
{
    struct params p;
    char error[512];

    params_default(&p);
    return params_set(&p, assignment, error, sizeof error) && params_check(&p, error, sizeof error);
}

static void test_params(void)
{
    CHECK(accepts("rpm=5400"), "refused");
    CHECK(accepts("zone_sectors_per_track=900,800,700"), "refused");
    CHECK(accepts("scheduler=fifo"), "refused");
    CHECK(accepts("scheduler=anticipatory"), "refused");
    CHECK(accepts("antic_expire_ns=0"), "refused");
    CHECK(accepts("cache_bytes=0"), "refused");
    CHECK(accepts("name=my drive"), "refused");
    CHECK(!accepts("rpm"), "accepted");
    CHECK(!accepts("rpm="), "accepted");
    CHECK(!accepts("rpm=7200x"), "accepted");
    CHECK(!accepts("rpm=0"), "accepted");
    CHECK(!accepts("rp=7200"), "accepted");
    CHECK(!accepts("rpmm=7200"), "accepted");
    CHECK(!accepts("zone_sectors_per_track=900,,700"), "accepted");
    CHECK(!accepts("zone_sectors_per_track="), "accepted");
    CHECK(!accepts("scheduler=elevator"), "accepted");
    CHECK(!accepts("seek_full_ns=1000000"), "accepted");
    CHECK(!accepts("track_skew_ns=0"), "accepted");
    CHECK(!accepts("cache_bytes=524288"), "accepted");
    CHECK(!accepts("name=a\"b"), "accepted");
    CHECK(!accepts("name=a\tb"), "accepted"); /* no JSON has it as it is */
}

/* Every sector has a place of its own, in order, and the angles follow the skews. */
static void test_geometry(void)
{
    struct params p;
    struct geometry g;
    struct place before = {0};
    int64_t tracks = 0;
    char error[256];

    params_default(&p);
    CHECK(params_set(&p, "heads=3", error, sizeof error), "%s", error);
    CHECK(params_set(&p, "cylinders=101", error, sizeof error), "%s", error);
    CHECK(params_set(&p, "zone_sectors_per_track=97,53,31", error, sizeof error), "%s", error);
    geometry_init(&g, &p);
    for (int64_t sector = 0; sector < g.sectors; sector++) {
        struct place at = geometry_locate(&g, sector);

        CHECK(at.sector < at.sectors_per_track && at.head < 3 && at.cylinder < 101, "outside");
        if (sector == 0 || at.sector == 0) {
            tracks++;
            CHECK_EQUAL(at.cylinder * 3 + at.head, tracks - 1);
            if (sector > 0) {
                int64_t skew = at.head == 0 ? p.cylinder_skew_ns : p.track_skew_ns;
                struct place start = before;

                start.sector = 0;
                CHECK_EQUAL(before.sector, before.sectors_per_track - 1);
                CHECK_EQUAL((geometry_angle(&g, &start) + skew) % g.revolution_ns,
                            geometry_angle(&g, &at));
            }
        } else {
            CHECK_EQUAL(at.sector, before.sector + 1);
        }
        before = at;
    }
    CHECK_EQUAL(tracks, 303);
}

/* The curve meets the three published figures, and never falls. */
static void test_seek(void)
{
    struct params p;
    struct seek s;
    double sum = 0;
    double pairs = 0;
    int64_t before = 0;

    params_default(&p);
    seek_init(&s, &p);
    CHECK_EQUAL(seek_time(&s, 0), 0);
    CHECK_EQUAL(seek_time(&s, 1), p.seek_track_ns);
    CHECK_EQUAL(seek_time(&s, -1), p.seek_track_ns);
    CHECK_NEAR(seek_time(&s, p.cylinders - 1), p.seek_full_ns, 1e-6);
    for (int64_t d = 1; d < p.cylinders; d++) {
        int64_t t = seek_time(&s, d);

        CHECK(t >= before, "falls at %" PRId64, d);
        before = t;
        sum += (double)t * (double)(p.cylinders - d) * 2;
        pairs += (double)(p.cylinders - d) * 2;
    }
    CHECK_NEAR(sum / pairs, p.seek_average_ns, 0.001);
}

int main(void)
{
    test_sectors();
    test_store();
    test_histogram();
    test_params();
    test_geometry();
    test_seek();
    return 0;
}
