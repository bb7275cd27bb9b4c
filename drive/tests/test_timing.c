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
               revolution +
                   geometry_pass(&rig.model.unit[0].mechanism.geometry, 1068, 0, 10 * PAGE),
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
                   (double)rig.params.command_overhead_ns + seek + (double)g->revolution_ns / 2 +
                       transfer,
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

/* --- command queues, stripes, flash ---------------------------------------------------- */

/* Each choice is the nearest of those waiting: checked against a plan of each, made here. */
static void test_shortest_positioning_first(void)
{
    static const char *const queued[] = {"queue_depth=16", "read_segments=0", NULL};
    struct rig rig;
    uint64_t seed = 11;
    int checked = 0;

    rig_init(&rig, SIZE, false, queued);
    for (int round = 0; round < 40; round++) {
        struct request *r[16];

        for (int i = 0; i < 16; i++)
            rig_submit(&rig, r[i] = rig_request(REQUEST_READ, (int64_t)(rig_random(&seed) % 500000),
                                                8, 0));
        for (int left = 16; left > 0; left--) {
            struct mechanism at;
            int64_t best = INT64_MAX;
            int64_t start;
            const struct unit *u = &rig.model.unit[0];

            while (u->task != HEADS_COMMAND || u->motion.start < rig.now)
                rig_advance(&rig, model_next_event(&rig.model));
            at = u->mechanism; /* where the heads were when they were given this */
            start = u->motion.start;
            for (int i = 0; i < 16; i++) {
                struct motion m;

                if (r[i]->done > r[i]->arrival && r[i]->done <= start)
                    continue;
                m = mechanism_plan(&at, r[i]->sector, 8, false, start);
                if (m.seek_ns + m.rotate_ns < best)
                    best = m.seek_ns + m.rotate_ns;
            }
            CHECK_EQUAL(u->motion.seek_ns + u->motion.rotate_ns, best);
            checked++;
            rig_advance(&rig, u->motion.end);
        }
        rig_finish(&rig);
        for (int i = 0; i < 16; i++)
            rig_release(r[i]);
    }
    CHECK_EQUAL(checked, 640);
    rig_free(&rig);
}

/* Near requests without end do not keep a far one waiting for ever. */
static void test_starvation(void)
{
    static const char *const patient[] = {"queue_depth=8", "read_segments=0",
                                          "queue_patience_ns=100000000", NULL};
    struct rig rig;
    struct request *far = rig_request(REQUEST_READ, SIZE / SECTOR_BYTES - 8, 8, 0);
    uint64_t seed = 12;

    rig_init(&rig, SIZE, false, patient);
    rig_submit(&rig, far);
    for (int i = 0; i < 7; i++)
        rig_submit(&rig, rig_request(REQUEST_READ, i * 100, 8, 0));
    while (far->done == far->arrival && rig.now < 5000 * MS) {
        rig_advance(&rig, model_next_event(&rig.model));
        while (rig.open < 8)
            rig_submit(&rig, rig_request(REQUEST_READ, (int64_t)(rig_random(&seed) % 2000), 8, 0));
    }
    CHECK(far->done > far->arrival, "starved");
    CHECK(far->done - far->arrival < 100 * MS + 60 * MS, "waited %g ms",
          (double)(far->done - far->arrival) / 1e6);
    rig_finish(&rig);
    rig_free(&rig);
}

/* N spindles: N times the rate in sequence, and a request within a chunk moves one of them. */
static void test_stripes(void)
{
    static const char *const one_spindle[] = {"read_segments=0", "queue_depth=32", NULL};
    static const char *const four[] = {"read_segments=0", "queue_depth=32", "units=4", NULL};
    double took[2];
    struct rig rig;

    for (int i = 0; i < 2; i++) {
        rig_init(&rig, SIZE, false, i == 0 ? one_spindle : four);
        for (int64_t k = 0; k < 64; k++)
            rig_submit(&rig, rig_request(REQUEST_WRITE, k * 1024, 1024, (int)k + 1));
        rig_finish(&rig);
        took[i] = (double)rig.now;
        for (int64_t k = 0; k < 64; k++)
            CHECK_EQUAL(rig_media(&rig, k * 1024 + 1023), k + 1);
        rig_free(&rig);
    }
    CHECK(took[0] / took[1] > 3 && took[0] / took[1] < 5, "%g times as fast", took[0] / took[1]);
    rig_init(&rig, SIZE, false, four);
    rig_read(&rig, 128 + 8, 16);
    CHECK_EQUAL(rig.model.counters.media_reads, 1);
    rig_read(&rig, 128 - 8, 16); /* across the end of a chunk */
    CHECK_EQUAL(rig.model.counters.media_reads, 3);
    /* Every sector is in one place, and back. */
    for (int64_t s = 0; s < 5000; s++) {
        int64_t unit = stripes_unit(&rig.model.stripes, s);

        CHECK_EQUAL(
            stripes_host(&rig.model.stripes, unit, stripes_local(&rig.model.stripes, unit, s)), s);
    }
    rig_free(&rig);
}

/* Heads that are to write settle longer after a seek; on the cylinder they are on, not at all. */
static void test_write_settle(void)
{
    static const char *const slow[] = {"write_settle_ns=3000000", NULL};
    struct rig rig;
    struct mechanism *heads;

    rig_init(&rig, SIZE, false, slow);
    heads = &rig.model.unit[0].mechanism;
    for (int64_t sector = SIZE / SECTOR_BYTES / 7; sector < SIZE / SECTOR_BYTES; sector += 99991) {
        struct motion reading = mechanism_plan(heads, sector, PAGE, false, rig.now);
        struct motion writing = mechanism_plan(heads, sector, PAGE, true, rig.now);

        CHECK_EQUAL(writing.seek_ns, reading.seek_ns + 3 * MS);
    }
    CHECK_EQUAL(mechanism_plan(heads, 8, PAGE, true, rig.now).seek_ns,
                mechanism_plan(heads, 8, PAGE, false, rig.now).seek_ns);
    rig_free(&rig);
}

static void test_flash(void)
{
    static const char *const flash[] = {"read_segments=0",
                                        "queue_depth=32",
                                        "units=8",
                                        "stripe_bytes=16384",
                                        "flash_bytes=1073741824",
                                        "flash_read_ns=50000",
                                        "flash_program_ns=200000",
                                        "flash_bytes_per_s=100000000",
                                        "command_overhead_ns=10000",
                                        NULL};
    struct rig rig;
    int64_t start;

    rig_init(&rig, SIZE, false, flash);
    start = rig.now;
    CHECK_EQUAL(rig_read(&rig, 77 * 32, 8) - start, 10 * US + 50 * US + 40960);
    start = rig.now;
    CHECK_EQUAL(rig_write(&rig, 5 * 32, 8, 3) - start, 10 * US + 200 * US + 40960);
    CHECK_EQUAL(rig_media(&rig, 5 * 32 + 7), 3);
    /* A request over all channels takes the time of its part on each. */
    start = rig.now;
    CHECK_EQUAL(rig_write(&rig, 0, 8 * 32, 4) - start, 10 * US + 200 * US + 163840);
    /* One on each channel at the same time. */
    start = rig.now;
    for (int i = 0; i < 8; i++)
        rig_submit(&rig, rig_request(REQUEST_READ, i * 32, 8, 0));
    rig_finish(&rig);
    CHECK_EQUAL(rig.now - start, 10 * US + 50 * US + 40960);
    rig_free(&rig);
}

/* A queued flush lets reads by, and ends although they never stop. */
static void test_queued_flush(void)
{
    static const char *const queued[] = {"queue_depth=8", "read_segments=0", "queued_flush=1",
                                         NULL};
    struct rig rig;
    struct request *flush = rig_request(REQUEST_FLUSH, 0, 0, 0);
    struct request *read;
    uint64_t seed = 13;
    int passed = 0;

    rig_init(&rig, SIZE, true, queued);
    model_set_destage(&rig.model, false);
    for (int i = 0; i < 20; i++)
        rig_write(&rig, i * 4000, PAGE, i + 1);
    rig_submit(&rig, flush);
    while (flush->done == flush->arrival && rig.now < 5000 * MS) {
        read = rig_request(REQUEST_READ, 100000 + (int64_t)(rig_random(&seed) % 100000), 8, 0);
        rig_submit(&rig, read);
        rig_submit(&rig, rig_request(REQUEST_WRITE, 200000 + passed * 64, 8, 1));
        while (read->done == read->arrival)
            rig_advance(&rig, model_next_event(&rig.model));
        passed += flush->done == flush->arrival;
    }
    CHECK(flush->done > flush->arrival, "the flush never ends");
    CHECK(passed > 5, "%d reads passed", passed);
    for (int i = 0; i < 20; i++)
        CHECK_EQUAL(rig_media(&rig, i * 4000), i + 1);
    rig_finish(&rig);
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
    test_shortest_positioning_first();
    test_starvation();
    test_stripes();
    test_write_settle();
    test_flash();
    test_queued_flush();
    test_constant_latency();
    return 0;
}
