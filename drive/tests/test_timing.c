/* When things are done, against the arithmetic of the profile. */
#include "rig.h"

#define SIZE (INT64_C(256) << 20)
#define PAGE 16 /* sectors of 8 kB */

/* Each write misses the sector that has just passed: one revolution and its transfer. */
static void test_synchronous_writes(void)
{
    struct rig rig;
    int64_t first = 0;
    int64_t last = 0;

    rig_init(&rig, SIZE, false, NULL);
    for (int i = 0; i <= 1000; i++) {
        last = rig_write(&rig, i * PAGE, PAGE, i);
        if (i == 0)
            first = last;
        rig_advance(&rig, rig.now + 100 * US); /* the host thinks */
    }
    CHECK_NEAR(1000 * 1e9 / (double)(last - first), 120, 0.02);
    /* Alike for every way to be synchronous: FLUSH costs nothing with the cache off... */
    for (int i = 0; i <= 1000; i++) {
        rig_write(&rig, i * PAGE, PAGE, i);
        last = rig_flush(&rig);
        if (i == 0)
            first = last;
        rig_advance(&rig, rig.now + 100 * US);
    }
    CHECK_NEAR(1000 * 1e9 / (double)(last - first), 120, 0.02);
    rig_free(&rig);
}

/* Pages that wait while the drive is busy become one command. */
static void test_merge(void)
{
    struct rig rig;
    struct request *first = rig_request(REQUEST_WRITE, 0, PAGE, 1);
    struct request *queued[10];
    int64_t revolution;
    struct counters *c = &rig.model.counters;

    rig_init(&rig, SIZE, false, NULL);
    revolution = rig.model.unit[0].mechanism.geometry.revolution_ns;
    rig_submit(&rig, first);
    rig_advance(&rig, rig.now + 10 * US);
    for (int i = 9; i >= 0; i--) /* in any order of arrival */
        rig_submit(&rig, queued[i] = rig_request(REQUEST_WRITE, (i + 1) * PAGE, PAGE, i + 2));
    rig_finish(&rig);
    CHECK_EQUAL(c->commands, 2);
    CHECK_EQUAL(c->merged_requests, 9);
    for (int i = 0; i < 10; i++)
        CHECK_EQUAL(queued[i]->done, queued[0]->done);
    CHECK_NEAR(queued[0]->done - first->done,
               revolution + geometry_pass(&rig.model.unit[0].mechanism.geometry, 1068, 0, 10 * PAGE),
               0.001);
    for (int i = 0; i <= 10; i++)
        CHECK_EQUAL(rig_media(&rig, i * PAGE), i + 1);
    /* No longer than merge_bytes, and reads do not merge with writes. */
    model_reset_counters(&rig.model);
    rig_submit(&rig, rig_request(REQUEST_WRITE, 0, PAGE, 1));
    rig_advance(&rig, rig.now + 10 * US);
    for (int i = 0; i < 65; i++)
        rig_submit(&rig, rig_request(REQUEST_WRITE, 10000 + i * PAGE, PAGE, 1));
    rig_submit(&rig, rig_request(REQUEST_READ, 10000 + 65 * PAGE, PAGE, 1));
    rig_finish(&rig);
    CHECK_EQUAL(c->commands, 4);
    CHECK_EQUAL(c->merged_requests, 63);
    rig_free(&rig);
}

/* The elevator sweeps upwards from the head and starts again at the lowest. */
static void test_elevator(void)
{
    static const int64_t sectors[] = {400000, 100000, 300000, 50000};
    static const int64_t order[] = {300000, 400000, 50000, 100000};
    struct rig rig;
    struct request *r[4];
    int64_t before = 0;

    rig_init(&rig, SIZE, false, NULL);
    rig_submit(&rig, rig_request(REQUEST_WRITE, 200000, PAGE, 1));
    rig_advance(&rig, rig.now + 10 * US);
    for (int i = 0; i < 4; i++)
        rig_submit(&rig, r[i] = rig_request(REQUEST_WRITE, sectors[i], PAGE, 1));
    rig_finish(&rig);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            if (r[k]->sector == order[i]) {
                CHECK(r[k]->done > before, "sector %" PRId64 " out of turn", r[k]->sector);
                before = r[k]->done;
            }
    rig_free(&rig);
}

/* Mean access = overhead + mean seek + half a revolution + transfer. */
static void test_random_reads(void)
{
    static const char *const small[] = {"cylinders=4000", "read_segments=0", NULL};
    struct rig rig;
    uint64_t seed = 3;
    double total = 0;
    double seek = 0;
    double transfer = 0;
    double pairs = 0;
    int64_t sectors;
    enum { N = 40000 };

    rig_init(&rig, INT64_C(3100) << 20, false, small);
    sectors = rig.model.unit[0].mechanism.geometry.sectors;
    for (int i = 0; i < N; i++) {
        int64_t start = rig.now;
        int64_t at = (int64_t)(rig_random(&seed) % (uint64_t)(rig.model.sectors - PAGE));

        total += (double)(rig_read(&rig, at, PAGE) - start);
        rig_advance(&rig, rig.now + (int64_t)(rig_random(&seed) % 10000000));
    }
    /*
     * The profile's own arithmetic: places are as dense as their zone, and only
     * the part of the drive that the disk covers counts.
     */
    {
        static double weight[4000];
        const struct geometry *g = &rig.model.unit[0].mechanism.geometry;
        double part = (double)rig.model.sectors / (double)sectors;
        int64_t last = geometry_locate(g, rig.model.sectors - 1).cylinder;

        CHECK(part > 0.9, "most of the drive");
        for (int64_t z = 0; z < g->zones; z++) {
            int64_t end = z + 1 < g->zones ? g->zone[z + 1].first_cylinder : g->cylinders;

            for (int64_t c = g->zone[z].first_cylinder; c < end && c <= last; c++)
                weight[c] = (double)g->zone[z].sectors_per_track;
        }
        for (int64_t a = 0; a <= last; a++) {
            transfer += weight[a] * (double)g->revolution_ns * PAGE / weight[a];
            pairs += weight[a];
        }
        transfer /= pairs;
        for (int64_t d = 1; d <= last; d++) {
            double w = 0;

            for (int64_t a = 0; a + d <= last; a++)
                w += 2 * weight[a] * weight[a + d];
            seek += w * (double)seek_time(&rig.model.unit[0].mechanism.seek, d);
        }
        seek /= pairs * pairs;
        CHECK_NEAR(total / N,
                   (double)rig.params.command_overhead_ns + seek +
                       (double)g->revolution_ns / 2 + transfer,
                   0.01);
    }
    CHECK_NEAR(rig.model.counters.rotate_ns / (double)N,
               (double)rig.model.unit[0].mechanism.geometry.revolution_ns / 2, 0.01);
    rig_free(&rig);
}

/* Reading on and on runs at the rate of the zone, skews included. */
static void test_sequential_reads(void)
{
    struct rig rig;
    const struct geometry *g;
    int64_t cylinder;
    int64_t start;
    int64_t sectors;
    double expected;

    rig_init(&rig, SIZE, false, NULL);
    g = &rig.model.unit[0].mechanism.geometry;
    cylinder = 2 * g->revolution_ns + rig.params.track_skew_ns + rig.params.cylinder_skew_ns;
    expected = 2.0 * 1068 * SECTOR_BYTES * 1e9 / (double)cylinder;
    rig_read(&rig, 0, 256);
    start = rig.now;
    for (sectors = 256; sectors < 256 * 800; sectors += 256) {
        rig_read(&rig, sectors, 256);
        rig_advance(&rig, rig.now + 50 * US);
    }
    CHECK_NEAR((double)(sectors - 256) * SECTOR_BYTES * 1e9 / (double)(rig.now - start), expected,
               0.01);
    CHECK(rig.model.counters.readahead_hits > 790, "read-ahead");
    /* One long command has the same rate: skews suffice for the switches. */
    {
        int64_t end;

        mechanism_walk(&rig.model.unit[0].mechanism, 0, 1068 * 200, false, 0, INT64_MAX, &end);
        CHECK_NEAR(1068.0 * 200 * SECTOR_BYTES * 1e9 / (double)end, expected, 0.01);
    }
    rig_free(&rig);
}

/* Sectors that have passed come from the segment at the interface's rate. */
static void test_read_ahead(void)
{
    struct rig rig;
    int64_t start;
    int64_t hit;

    rig_init(&rig, SIZE, true, NULL);
    rig_read(&rig, 5000, PAGE);
    rig_advance(&rig, rig.now + 20 * MS);
    start = rig.now;
    hit = rig.params.command_overhead_ns + PAGE * SECTOR_BYTES * 10; /* 100 MB/s: 10 ns a byte */
    CHECK_EQUAL(rig_read(&rig, 5000 + PAGE, PAGE) - start, hit);
    CHECK_EQUAL(rig.model.counters.readahead_hits, 1);
    /* A write into it makes it forget; the read then needs media or cache, not old bytes. */
    rig_write(&rig, 5000 + 2 * PAGE, PAGE, 9);
    {
        struct request *r = rig_request(REQUEST_READ, 5000 + 2 * PAGE, 2 * PAGE, 0);

        rig_submit(&rig, r);
        rig_finish(&rig);
        CHECK_EQUAL(((unsigned char *)r->data)[0], 9);
        CHECK_EQUAL(r->flags & FLAG_READ_AHEAD, 0);
        rig_release(r);
    }
    rig_free(&rig);
}

/* When an access is done, its last sector has just passed: the platter is where time says. */
static void test_angle(void)
{
    struct rig rig;
    uint64_t seed = 6;

    rig_init(&rig, SIZE, false, NULL);
    for (int i = 0; i < 2000; i++) {
        const struct geometry *g = &rig.model.unit[0].mechanism.geometry;
        int64_t sector = (int64_t)(rig_random(&seed) % (SIZE / SECTOR_BYTES - 3000));
        int64_t count = (int64_t)(rig_random(&seed) % 3000) + 1;
        int64_t done = rig_write(&rig, sector, count, i);
        struct place last = geometry_locate(g, sector + count - 1);
        int64_t behind = geometry_angle(g, &last) +
                         geometry_pass(g, last.sectors_per_track, last.sector, last.sector + 1);

        CHECK_EQUAL(done % g->revolution_ns, behind % g->revolution_ns);
        rig_advance(&rig, rig.now + (int64_t)(rig_random(&seed) % (20 * MS)));
    }
    rig_free(&rig);
}

static void test_conservation(void)
{
    struct rig rig;
    struct counters *c = &rig.model.counters;
    uint64_t seed = 4;

    rig_init(&rig, SIZE, false, NULL);
    for (int i = 0; i < 3000; i++) {
        int64_t sector = (int64_t)(rig_random(&seed) % (SIZE / SECTOR_BYTES - 256));
        int64_t count = (int64_t)(rig_random(&seed) % 255) + 1;
        enum request_kind kind = (enum request_kind)(rig_random(&seed) % 3);

        rig_submit(&rig, rig_request(kind, kind == REQUEST_FLUSH ? 0 : sector,
                                     kind == REQUEST_FLUSH ? 0 : count, i));
        if (rig_random(&seed) % 4 == 0)
            rig_advance(&rig, rig.now + (int64_t)(rig_random(&seed) % (50 * MS)));
    }
    rig_rest(&rig);
    CHECK_EQUAL(c->media_ns, c->seek_ns + c->rotate_ns + c->transfer_ns);
    CHECK_EQUAL(c->command_ns, c->overhead_ns + c->interface_ns + c->media_ns);
    CHECK_EQUAL(c->busy_ns, c->command_ns);
    CHECK_EQUAL(c->reads + c->writes + c->flushes, 3000);
    CHECK_EQUAL(c->commands + c->merged_requests, 3000);
    rig_free(&rig);
}

static void test_constant_latency(void)
{
    static const char *const constant[] = {"constant_latency_ns=5000000", NULL};
    struct rig rig;
    struct request *r[32];

    rig_init(&rig, SIZE, false, constant);
    for (int i = 0; i < 32; i++) {
        rig_submit(&rig, r[i] = rig_request(REQUEST_WRITE, i * 1000, PAGE, i));
        rig_advance(&rig, rig.now + 10 * US);
    }
    rig_finish(&rig);
    for (int i = 0; i < 32; i++) {
        CHECK_EQUAL(r[i]->done - r[i]->arrival, 5 * MS);
        CHECK_EQUAL(rig_media(&rig, i * 1000), i);
    }
    rig_free(&rig);
}

int main(void)
{
    test_synchronous_writes();
    test_merge();
    test_elevator();
    test_random_reads();
    test_sequential_reads();
    test_read_ahead();
    test_angle();
    test_conservation();
    test_constant_latency();
    return 0;
}
