/* The write cache, flushes and power cuts. */
#include "rig.h"

#define SIZE (INT64_C(256) << 20)
#define PAGE 16

static int64_t hit_ns(const struct rig *rig, int64_t sectors)
{
    return rig->params.command_overhead_ns +
           sectors * SECTOR_BYTES * NS_PER_SECOND / rig->params.interface_bytes_per_s;
}

static void test_hits(void)
{
    struct rig rig;
    int64_t start;

    rig_init(&rig, SIZE, true, NULL);
    model_set_destage(&rig.model, false);
    start = rig.now;
    CHECK_EQUAL(rig_write(&rig, 1000, PAGE, 7) - start, hit_ns(&rig, PAGE));
    CHECK_EQUAL(rig_media(&rig, 1000), 0);
    CHECK_EQUAL(model_dirty_bytes(&rig.model), PAGE * SECTOR_BYTES);
    start = rig.now;
    CHECK_EQUAL(rig_read(&rig, 1004, 4) - start, hit_ns(&rig, 4));
    CHECK_EQUAL(rig.model.counters.cache_read_hits, 1);
    CHECK_EQUAL(rig.model.counters.cache_write_hits, 1);
    /* Left alone it stays while paused, and goes when destaging is on again. */
    rig_advance(&rig, rig.now + 1000 * MS);
    CHECK_EQUAL(rig_media(&rig, 1000), 0);
    model_set_destage(&rig.model, true);
    rig_rest(&rig);
    CHECK_EQUAL(rig_media(&rig, 1000), 7);
    CHECK_EQUAL(model_dirty_bytes(&rig.model), 0);
    rig_free(&rig);
}

/* A full cache takes only what the heads make room for. */
static void test_full(void)
{
    static const char *const small[] = {"cache_bytes=2097152", NULL};
    struct rig rig;
    uint64_t seed = 5;
    int64_t start;
    int64_t destaged;
    double before;
    double full;
    enum { N = 2000 };

    rig_init(&rig, SIZE, true, small);
    start = rig.now;
    for (int i = 0; i < 200; i++)
        rig_write(&rig, (int64_t)(rig_random(&seed) % 30000) * PAGE, PAGE, i);
    before = (double)(rig.now - start) / 200;
    CHECK_NEAR(before, hit_ns(&rig, PAGE), 0.01);
    for (int i = 0; i < N; i++)
        rig_write(&rig, (int64_t)(rig_random(&seed) % 30000) * PAGE, PAGE, i);
    start = rig.now;
    destaged = (int64_t)rig.model.counters.sectors_destaged;
    for (int i = 0; i < N; i++)
        rig_write(&rig, (int64_t)(rig_random(&seed) % 30000) * PAGE, PAGE, i);
    full = (double)(rig.now - start) / N;
    destaged = (int64_t)rig.model.counters.sectors_destaged - destaged;
    CHECK(full > 3 * before, "full: %g, before: %g ns a write", full, before);
    CHECK_NEAR(destaged, N * PAGE, 0.05); /* what comes in goes out */
    CHECK(rig.model.counters.dirty_bytes_max <= 2097152, "more dirty than the cache is large");
    CHECK(rig.model.counters.room_ns > 0, "nobody waited");
    rig_free(&rig);
}

/*
 * What a rewrite replaces may be on its way to the media before its own bytes have come: it is
 * no room. The rig sees to it that the cache never holds more than its size.
 */
static void test_full_of_rewrites(void)
{
    static const char *const small[] = {"cache_bytes=131072", "merge_bytes=32768", NULL};

    for (enum write_cache state = CACHE_ON; state <= CACHE_BATTERY; state++) {
        struct rig rig;

        rig_init(&rig, SIZE, true, small);
        model_set_write_cache(&rig.model, state);
        model_set_destage(&rig.model, false);
        for (int64_t sector = 0; sector < rig.model.cache.capacity; sector += PAGE)
            rig_write(&rig, sector, PAGE, 1);
        CHECK_EQUAL(cache_used(&rig.model.cache), rig.model.cache.capacity);
        rig_advance(&rig, rig.now + 100 * MS);
        rig_submit(&rig, rig_request(REQUEST_WRITE, 0, PAGE, 2));
        rig_advance(&rig, rig.now + rig.params.command_overhead_ns + 1);
        model_set_destage(&rig.model, true);
        rig_finish(&rig);
        CHECK(rig.model.counters.room_ns > 0, "a full cache has taken a write at once");
        CHECK(rig.model.counters.dirty_bytes_max <= 131072, "more dirty than the cache is large");
        rig_rest(&rig);
        CHECK_EQUAL(rig_media(&rig, 0), 2);
        rig_free(&rig);
    }
}

static void test_flush(void)
{
    struct rig rig;
    int64_t start;

    rig_init(&rig, SIZE, true, NULL);
    model_set_destage(&rig.model, false);
    for (int i = 0; i < 100; i++)
        rig_write(&rig, i * 4000, PAGE, i + 1);
    start = rig.now;
    CHECK(rig_flush(&rig) - start > 100 * MS, "too fast for a hundred places");
    CHECK_EQUAL(model_dirty_bytes(&rig.model), 0);
    for (int i = 0; i < 100; i++)
        CHECK_EQUAL(rig_media(&rig, i * 4000), i + 1);
    /* Nothing dirty: only its fixed cost. */
    start = rig.now;
    CHECK_EQUAL(rig_flush(&rig) - start,
                rig.params.command_overhead_ns + rig.params.flush_overhead_ns);
    /* A drive that lies acknowledges as fast with everything still dirty. */
    model_set_flush_lies(&rig.model, true);
    rig_write(&rig, 0, PAGE, 99);
    start = rig.now;
    CHECK_EQUAL(rig_flush(&rig) - start, rig.params.command_overhead_ns);
    CHECK_EQUAL(rig_media(&rig, 0), 1);
    rig_free(&rig);
}

/* What arrives after a flush waits for it; what arrived before comes first. */
static void test_barrier(void)
{
    struct rig rig;
    struct request *before = rig_request(REQUEST_WRITE, 300000, PAGE, 1);
    struct request *flush = rig_request(REQUEST_FLUSH, 0, 0, 0);
    struct request *after = rig_request(REQUEST_READ, 300000 + PAGE, PAGE, 0);

    rig_init(&rig, SIZE, true, NULL);
    rig_submit(&rig, rig_request(REQUEST_WRITE, 100000, PAGE, 1));
    rig_submit(&rig, before);
    rig_submit(&rig, flush);
    rig_submit(&rig, after);
    rig_finish(&rig);
    CHECK(before->done < flush->done, "order");
    CHECK(flush->done <= after->start, "order");
    CHECK_EQUAL(rig_media(&rig, 300000), 1);
    rig_free(&rig);
}

/* FUA goes to the media past the cache, and voids older versions in it. */
static void test_fua(void)
{
    struct rig rig;
    struct request *r = rig_request(REQUEST_WRITE, 1004, 4, 2);

    rig_init(&rig, SIZE, true, NULL);
    model_set_destage(&rig.model, false);
    rig_write(&rig, 1000, PAGE, 1);
    r->fua = true;
    rig_do(&rig, r);
    CHECK_EQUAL(rig_media(&rig, 1004), 2);
    CHECK_EQUAL(rig_media(&rig, 1000), 0);
    rig_flush(&rig);
    CHECK_EQUAL(rig_media(&rig, 1000), 1);
    CHECK_EQUAL(rig_media(&rig, 1003), 1);
    CHECK_EQUAL(rig_media(&rig, 1004), 2);
    CHECK_EQUAL(rig_media(&rig, 1008), 1);
    CHECK_EQUAL(rig.model.counters.fua_writes, 1);
    rig_free(&rig);
}

/* A newer write while the older one is on its way to the media. */
static void test_overwrite_while_destaging(void)
{
    struct rig rig;
    struct request *r;

    rig_init(&rig, SIZE, true, NULL);
    rig_write(&rig, 1000, PAGE, 1);
    rig_advance(&rig, rig.now + rig.params.destage_idle_ns);
    CHECK(rig.model.unit[0].task == HEADS_DESTAGE, "not destaging");
    rig_write(&rig, 1008, 4, 2);
    CHECK(rig.model.unit[0].task == HEADS_DESTAGE, "destaged too soon");
    r = rig_request(REQUEST_READ, 1000, PAGE, 0);
    rig_submit(&rig, r);
    rig_finish(&rig);
    CHECK_EQUAL(r->flags & FLAG_CACHED, FLAG_CACHED);
    CHECK_EQUAL(((unsigned char *)r->data)[7 * SECTOR_BYTES], 1);
    CHECK_EQUAL(((unsigned char *)r->data)[8 * SECTOR_BYTES], 2);
    CHECK_EQUAL(((unsigned char *)r->data)[12 * SECTOR_BYTES], 1);
    rig_release(r);
    rig_rest(&rig);
    CHECK_EQUAL(rig_media(&rig, 1007), 1);
    CHECK_EQUAL(rig_media(&rig, 1008), 2);
    CHECK_EQUAL(rig_media(&rig, 1012), 1);
    rig_free(&rig);
}

static void cut(struct rig *rig, double keep)
{
    model_power_off(&rig->model, &(struct keeping){.share = keep, .seed = 1});
    rig_advance(rig, rig->now);
}

static void test_cut(void)
{
    struct rig rig;
    struct request *r;

    /* Cache off: completion means on the media. */
    rig_init(&rig, SIZE, false, NULL);
    for (int i = 0; i < 50; i++) {
        rig_write(&rig, i * 5000, PAGE, i + 1);
        CHECK_EQUAL(rig_media(&rig, i * 5000 + PAGE - 1), i + 1);
    }
    cut(&rig, 0);
    for (int i = 0; i < 50; i++)
        CHECK_EQUAL(rig_media(&rig, i * 5000), i + 1);
    rig_free(&rig);

    /* Cache on: the flushed survives, the unflushed does not, and nothing works meanwhile. */
    rig_init(&rig, SIZE, true, NULL);
    model_set_destage(&rig.model, false);
    rig_write(&rig, 1000, PAGE, 1);
    rig_flush(&rig);
    rig_write(&rig, 1000, PAGE, 2);
    rig_write(&rig, 2000, PAGE, 2);
    cut(&rig, 0);
    for (int kind = REQUEST_READ; kind <= REQUEST_FLUSH; kind++) {
        r = rig_request((enum request_kind)kind, 0, kind == REQUEST_FLUSH ? 0 : PAGE, 0);
        rig_submit(&rig, r);
        rig_finish(&rig);
        CHECK(r->error != 0 && r->flags & FLAG_FAILED, "works without power");
        rig_release(r);
    }
    model_power_on(&rig.model);
    r = rig_request(REQUEST_READ, 1000, PAGE, 0);
    rig_submit(&rig, r);
    rig_finish(&rig);
    CHECK_EQUAL(((unsigned char *)r->data)[0], 1);
    rig_release(r);
    CHECK_EQUAL(rig_media(&rig, 2000), 0);
    CHECK_EQUAL(model_dirty_bytes(&rig.model), 0);
    rig_free(&rig);

    /* Some of it kept: about the share asked for, in whole pieces. */
    rig_init(&rig, SIZE, true, NULL);
    model_set_destage(&rig.model, false);
    for (int i = 0; i < 1000; i++)
        rig_write(&rig, i * 64, 8, 3);
    cut(&rig, 0.5);
    {
        int kept = 0;

        for (int i = 0; i < 1000; i++) {
            kept += rig_media(&rig, i * 64) == 3;
            CHECK_EQUAL(rig_media(&rig, i * 64), rig_media(&rig, i * 64 + 7));
        }
        CHECK(kept > 400 && kept < 600, "%d of 1000 kept", kept);
    }
    rig_free(&rig);
}

/* Cut at every moment of a write: a new prefix, an old suffix, all lengths seen. */
static void test_torn(void)
{
    bool seen[2 * PAGE + 1] = {false};

    for (int merged = 0; merged < 2; merged++)
        for (int64_t at = 0; at < 20 * MS; at += 3 * US) {
            struct rig rig;
            struct request *r[2];
            int length = 0;

            rig_init(&rig, 4 << 20, false, NULL);
            /* Two that waited together are one command. */
            r[0] = rig_request(REQUEST_WRITE, 16, merged ? PAGE : 2 * PAGE, 5);
            rig_submit(&rig, r[0]);
            r[1] = merged ? rig_request(REQUEST_WRITE, 16 + PAGE, PAGE, 5) : NULL;
            if (merged)
                rig_submit(&rig, r[1]);
            rig_advance(&rig, at);
            if (rig.open == 0) {
                rig_free(&rig);
                break;
            }
            cut(&rig, 0);
            CHECK_EQUAL(rig.open, 0);
            while (length < 2 * PAGE && rig_media(&rig, 16 + length) == 5)
                length++;
            for (int i = length; i < 2 * PAGE; i++)
                CHECK_EQUAL(rig_media(&rig, 16 + i), 0);
            seen[length] = true;
            rig_release(r[0]);
            if (merged)
                rig_release(r[1]);
            rig_free(&rig);
        }
    for (int i = 0; i < 2 * PAGE; i++)
        CHECK(seen[i], "never torn after %d sectors", i);
}

/* The same for a write of the drive's own: what it was destaging is torn, not kept. */
static void test_torn_destage(void)
{
    int lengths = 0;
    int before = -1;

    for (int64_t at = 0; at < 20 * MS; at += 3 * US) {
        struct rig rig;
        int length = 0;

        rig_init(&rig, 4 << 20, true, NULL);
        rig_write(&rig, 16, 2 * PAGE, 5);
        rig_advance(&rig, rig.params.destage_idle_ns + at);
        if (rig.model.unit[0].task == HEADS_FREE && model_dirty_bytes(&rig.model) == 0) {
            rig_free(&rig);
            break;
        }
        cut(&rig, 0);
        while (length < 2 * PAGE && rig_media(&rig, 16 + length) == 5)
            length++;
        for (int i = length; i < 2 * PAGE; i++)
            CHECK_EQUAL(rig_media(&rig, 16 + i), 0);
        lengths += length > before;
        CHECK(length >= before, "a later cut left less");
        before = length;
        rig_free(&rig);
    }
    CHECK_EQUAL(lengths, 2 * PAGE);
}

/* Flash has nothing of a write before it is programmed; then sector after sector as they come. */
static void test_torn_flash(void)
{
    static const char *const flash[] = {"read_segments=0",
                                        "flash_bytes=4194304",
                                        "flash_read_ns=50000",
                                        "flash_program_ns=200000",
                                        "flash_bytes_per_s=51200000",
                                        "command_overhead_ns=10000",
                                        NULL};
    enum { EACH = 10000, PROGRAM = 210000 };

    for (int64_t at = 0; at < PROGRAM + PAGE * EACH; at += 500) {
        struct rig rig;
        int64_t passed = at < PROGRAM ? 0 : (at - PROGRAM) / EACH;

        rig_init(&rig, 4 << 20, false, flash);
        rig_submit(&rig, rig_request(REQUEST_WRITE, 16, PAGE, 5));
        rig_advance(&rig, rig.now + at);
        cut(&rig, 0);
        for (int i = 0; i < PAGE; i++)
            CHECK_EQUAL(rig_media(&rig, 16 + i), i < passed ? 5 : 0);
        rig_free(&rig);
    }
}

/* With a battery the cache is as good as the platter, until it is full. */
static void test_battery(void)
{
    static const char *const small[] = {"cache_bytes=1048576", NULL};
    struct rig rig;
    struct request *r;
    uint64_t seed = 3;
    int64_t start;
    enum { N = 500 };

    rig_init(&rig, SIZE, false, small);
    model_set_write_cache(&rig.model, CACHE_BATTERY);
    model_set_destage(&rig.model, false);
    start = rig.now;
    CHECK_EQUAL(rig_write(&rig, 1000, PAGE, 1) - start, hit_ns(&rig, PAGE));
    start = rig.now;
    CHECK_EQUAL(rig_flush(&rig) - start, rig.params.command_overhead_ns);
    r = rig_request(REQUEST_WRITE, 1000, 4, 2);
    r->fua = true;
    start = rig.now;
    CHECK_EQUAL(rig_do(&rig, r) - start, hit_ns(&rig, 4));
    CHECK_EQUAL(rig_media(&rig, 1000), 0);
    cut(&rig, 0);
    CHECK_EQUAL(rig.model.cut.lost_sectors, 0);
    CHECK_EQUAL(rig.model.cut.kept_sectors, PAGE);
    rig_advance(&rig, rig.now + 1000 * MS);
    CHECK_EQUAL(rig_media(&rig, 1000), 0);
    model_power_on(&rig.model);
    r = rig_request(REQUEST_READ, 1000, PAGE, 0);
    rig_submit(&rig, r);
    rig_finish(&rig);
    CHECK_EQUAL(((unsigned char *)r->data)[0], 2);
    CHECK_EQUAL(((unsigned char *)r->data)[4 * SECTOR_BYTES], 1);
    rig_release(r);
    model_set_destage(&rig.model, true);
    rig_rest(&rig);
    CHECK_EQUAL(rig_media(&rig, 1003), 2);
    CHECK_EQUAL(rig_media(&rig, 1004), 1);

    /* Full, it takes what the heads make room for: as fast as they write. */
    for (int i = 0; i < N; i++)
        rig_write(&rig, (int64_t)(rig_random(&seed) % 30000) * PAGE, PAGE, i);
    model_reset_counters(&rig.model);
    start = rig.now;
    for (int i = 0; i < N; i++)
        rig_write(&rig, (int64_t)(rig_random(&seed) % 30000) * PAGE, PAGE, i);
    CHECK_NEAR(rig.now - start, rig.model.counters.media_ns, 0.02);
    CHECK_NEAR(rig.model.counters.sectors_destaged, N * PAGE, 0.1);
    rig_free(&rig);
}

/* Cut while the drive writes back what the battery keeps: nothing is lost at any moment. */
static void test_battery_destage(void)
{
    for (int64_t at = 0; at < 20 * MS; at += 37 * US) {
        struct rig rig;
        struct request *r = rig_request(REQUEST_READ, 16, 2 * PAGE, 0);

        rig_init(&rig, 4 << 20, false, NULL);
        model_set_write_cache(&rig.model, CACHE_BATTERY);
        rig_write(&rig, 16, 2 * PAGE, 5);
        rig_advance(&rig, rig.params.destage_idle_ns + at);
        if (rig.model.unit[0].task == HEADS_DESTAGE)
            rig_write(&rig, 20, 4, 6); /* newer than what is under way */
        cut(&rig, 0);
        model_power_on(&rig.model);
        CHECK_EQUAL(rig.model.cut.lost_sectors, 0);
        rig_submit(&rig, r);
        rig_finish(&rig);
        for (int i = 0; i < 2 * PAGE; i++) {
            int byte = ((unsigned char *)r->data)[i * SECTOR_BYTES];

            CHECK(byte == 5 || (byte == 6 && i >= 4 && i < 8), "sector %d: %d", i, byte);
        }
        rig_rest(&rig);
        CHECK_EQUAL(rig_media(&rig, 16), 5);
        CHECK_EQUAL(rig_media(&rig, 16 + 2 * PAGE - 1), 5);
        rig_free(&rig);
    }
}

static int failures;
static int successes;

static void count_results(struct rig *rig, struct request *r)
{
    (void)rig;
    if (r->error != 0)
        failures++;
    else
        successes++;
}

/* After exactly so many writes; at a moment of the window that only the seed decides. */
static void test_planned_cut(void)
{
    enum { WINDOWS = 400 };
    double sum = 0;

    for (int writes = 1; writes < 40; writes += 6) {
        struct cut_plan plan = {.writes = writes, .keep.seed = 1};
        struct rig rig;

        rig_init(&rig, SIZE, false, NULL);
        rig.completed = count_results;
        failures = successes = 0;
        model_plan_cut(&rig.model, &plan);
        for (int i = 0; i < 60; i++)
            rig_submit(&rig, rig_request(REQUEST_WRITE, (60 - i) * 5000, PAGE, i + 1));
        rig_finish(&rig);
        CHECK_EQUAL(successes, writes);
        CHECK_EQUAL(failures, 60 - writes);
        CHECK_EQUAL(rig.model.cut.failed, 60 - writes);
        CHECK_EQUAL(rig.model.cut.at, rig.now);
        CHECK(!rig.model.power && !rig.model.cut_planned, "the power is on");
        rig_free(&rig);
    }
    for (int seed = 0; seed < WINDOWS; seed++) {
        struct cut_plan plan = {.within_ns = 50 * MS, .keep.seed = (uint64_t)seed};
        int64_t at[2];

        for (int again = 0; again < 2; again++) {
            struct rig rig;

            rig_init(&rig, SIZE, false, NULL);
            rig_advance(&rig, 7 * MS);
            model_plan_cut(&rig.model, &plan);
            rig_rest(&rig);
            at[again] = rig.model.cut.at - 7 * MS;
            CHECK(at[again] >= 0 && at[again] < 50 * MS, "outside of the window");
            rig_free(&rig);
        }
        CHECK_EQUAL(at[0], at[1]);
        sum += (double)at[0];
    }
    /* The mean of a uniform window, within four standard errors. */
    CHECK(fabs(sum / WINDOWS - 25e6) < 4 * 50e6 / sqrt(12 * WINDOWS), "mean %g", sum / WINDOWS);
}

/* After exactly so many flushes; what the drive does for a switch of its own is none. */
static void test_cut_after_flushes(void)
{
    for (int flushes = 1; flushes < 8; flushes++) {
        struct cut_plan plan = {.flushes = flushes};
        struct rig rig;
        struct request *own;

        rig_init(&rig, SIZE, true, NULL);
        model_set_destage(&rig.model, false);
        model_plan_cut(&rig.model, &plan);
        own = rig_request(REQUEST_FLUSH, 0, 0, 0);
        own->honest = true;
        rig_do(&rig, own);
        for (int i = 1; i <= flushes; i++) {
            CHECK(rig.model.power && rig.model.cut_planned, "cut before flush %d", i);
            rig_write(&rig, i * 64, PAGE, i);
            CHECK_EQUAL(rig_media(&rig, i * 64), 0);
            CHECK_EQUAL(rig_flush(&rig), rig.now);
        }
        CHECK(!rig.model.power, "the power is on");
        CHECK_EQUAL(rig.model.cut.at, rig.now);
        CHECK_EQUAL(rig.model.cut.pieces, 0);
        for (int i = 1; i <= flushes; i++)
            CHECK_EQUAL(rig_media(&rig, i * 64), i);
        rig_free(&rig);
    }
}

/*
 * Each prefix of what the cache holds, in the order in which it was written: five writes of a page,
 * one of which was replaced in its midst, so that two pieces of it are left, and one wholly.
 */
static void test_cut_keeps_first(void)
{
    static const struct {
        int64_t sector;
        int64_t count;
        int fill;
    } piece[] = {{5000, PAGE, 1}, {3000, 4, 2}, {3012, 4, 2},
                 {9000, PAGE, 4}, {3004, 8, 5}, {1000, PAGE, 6}};
    const int64_t pieces = sizeof piece / sizeof piece[0];

    for (int64_t first = 0; first <= pieces + 2; first++) {
        struct keeping keep = {.first = first};
        struct rig rig;

        rig_init(&rig, SIZE, true, NULL);
        model_set_destage(&rig.model, false);
        rig_write(&rig, 5000, PAGE, 1);
        rig_write(&rig, 3000, PAGE, 2);
        rig_write(&rig, 1000, PAGE, 3);
        rig_write(&rig, 9000, PAGE, 4);
        rig_write(&rig, 3004, 8, 5);
        rig_write(&rig, 1000, PAGE, 6);
        model_power_off(&rig.model, &keep);
        CHECK_EQUAL(rig.model.cut.pieces, pieces);
        CHECK_EQUAL(rig.model.cut.kept_sectors + rig.model.cut.lost_sectors, 4 * PAGE);
        for (int64_t i = 0; i < pieces; i++)
            for (int64_t s = 0; s < piece[i].count; s++)
                CHECK_EQUAL(rig_media(&rig, piece[i].sector + s), i < first ? piece[i].fill : 0);
        rig_free(&rig);
    }
}

/* Others that share the power have lost it: as planned for that, else nothing is kept. */
static void test_follow(void)
{
    for (int planned = 0; planned < 2; planned++) {
        struct cut_plan plan = {.follow = true, .keep.share = 1};
        struct rig rig;

        rig_init(&rig, SIZE, true, NULL);
        model_set_destage(&rig.model, false);
        if (planned)
            model_plan_cut(&rig.model, &plan);
        for (int i = 0; i < 20; i++)
            rig_write(&rig, i * 64, PAGE, 7);
        rig_flush(&rig);
        rig_write(&rig, 9000, PAGE, 8);
        rig_advance(&rig, rig.now + 100 * MS);
        CHECK(rig.model.power, "cut by itself");
        model_follow_cut(&rig.model);
        CHECK_EQUAL(rig.model.cut.at, rig.now);
        CHECK_EQUAL(rig_media(&rig, 19 * 64), 7);
        CHECK_EQUAL(rig_media(&rig, 9000), planned ? 8 : 0);
        rig_free(&rig);
    }
}

static int64_t reported[SIZE / SECTOR_BYTES];

static void tell_lost(void *context, int64_t sector, int64_t count)
{
    (void)context;
    for (int64_t i = 0; i < count; i++)
        reported[sector + i]++;
}

/* What a cut took is reported, sector by sector: all that had been acknowledged and is not there.
 */
static void test_lost(void)
{
    for (int round = 0; round < 50; round++) {
        struct rig rig;
        uint64_t seed = (uint64_t)round * 977 + 1;
        static int newest[SIZE / SECTOR_BYTES];
        int64_t lost = 0;

        rig_init(&rig, SIZE, true, NULL);
        rig.data.medium.lost = tell_lost;
        memset(reported, 0, sizeof reported);
        memset(newest, 0, sizeof newest);
        for (int i = 1; i < 120; i++) {
            int64_t sector = (int64_t)(rig_random(&seed) % 600) * 8;

            rig_write(&rig, sector, 8, i);
            for (int k = 0; k < 8; k++)
                newest[sector + k] = i;
        }
        rig_advance(&rig, rig.now + (int64_t)(rig_random(&seed) % (60 * MS)));
        cut(&rig, round % 3 / 2.0);
        for (int64_t s = 0; s < 4800; s++) {
            CHECK(reported[s] <= 2, "sector %" PRId64 " told %" PRId64 " times", s, reported[s]);
            if (rig_media(&rig, s) != newest[s])
                CHECK(reported[s] > 0, "sector %" PRId64 " lost in silence", s);
            else
                CHECK(reported[s] <= 1, "sector %" PRId64 " is there and was told as lost", s);
            lost += reported[s];
        }
        CHECK_EQUAL(lost, rig.model.cut.lost_sectors);
        rig_free(&rig);
    }
}

static int error_of(struct rig *rig, enum request_kind kind, int64_t sector)
{
    struct request *r = rig_request(kind, sector, kind == REQUEST_FLUSH ? 0 : PAGE, 9);
    int error;

    rig_submit(rig, r);
    rig_finish(rig);
    error = r->error;
    rig_release(r);
    return error;
}

static void test_errors(void)
{
    struct rig rig;
    struct errors errors = {
        .kinds = 1 << REQUEST_WRITE, .first = 1000, .end = 1001, .times = 2, .until = MODEL_NEVER};

    rig_init(&rig, SIZE, false, NULL);
    rig_write(&rig, 1000, PAGE, 1);
    model_set_errors(&rig.model, &errors);
    CHECK_EQUAL(error_of(&rig, REQUEST_WRITE, 1000 + 1), 0);
    CHECK_EQUAL(error_of(&rig, REQUEST_READ, 1000), 0);
    CHECK(error_of(&rig, REQUEST_WRITE, 1000) != 0, "wrote");
    CHECK(error_of(&rig, REQUEST_WRITE, 1000 - PAGE + 1) != 0, "wrote");
    CHECK_EQUAL(rig_media(&rig, 1000), 1); /* what failed has changed nothing */
    CHECK_EQUAL(error_of(&rig, REQUEST_WRITE, 1000), 0);
    CHECK_EQUAL(rig.model.counters.errors_injected, 2);

    errors = (struct errors){.kinds = 1 << REQUEST_FLUSH | 1 << REQUEST_READ,
                             .end = INT64_MAX,
                             .times = INT64_MAX,
                             .until = 100 * MS};
    model_set_errors(&rig.model, &errors);
    for (int i = 0; i < 5; i++) {
        CHECK(error_of(&rig, REQUEST_FLUSH, 0) != 0, "flushed");
        CHECK(error_of(&rig, REQUEST_READ, 5000) != 0, "read");
        CHECK_EQUAL(error_of(&rig, REQUEST_WRITE, 5000), 0);
    }
    rig_advance(&rig, rig.now + 100 * MS);
    CHECK_EQUAL(error_of(&rig, REQUEST_FLUSH, 0), 0);
    CHECK_EQUAL(error_of(&rig, REQUEST_READ, 5000), 0);
    rig_free(&rig);
}

static void test_switches(void)
{
    struct rig rig;

    rig_init(&rig, SIZE, true, NULL);
    /* Off: an honest flush empties the cache even on a drive that lies. */
    model_set_flush_lies(&rig.model, true);
    model_set_destage(&rig.model, false);
    rig_write(&rig, 1000, PAGE, 1);
    model_set_write_cache(&rig.model, false);
    {
        struct request *r = rig_request(REQUEST_FLUSH, 0, 0, 0);

        r->honest = true;
        rig_do(&rig, r);
    }
    CHECK_EQUAL(rig_media(&rig, 1000), 1);
    /* Timing off: at once, and on the media. */
    model_set_timing(&rig.model, false);
    {
        int64_t now = rig.now;

        CHECK_EQUAL(rig_write(&rig, 2000, PAGE, 4), now);
        CHECK_EQUAL(rig_flush(&rig), now);
        CHECK_EQUAL(rig_read(&rig, 2000, PAGE), now);
    }
    CHECK_EQUAL(rig_media(&rig, 2000), 4);
    rig_free(&rig);
}

int main(void)
{
    test_hits();
    test_full();
    test_full_of_rewrites();
    test_flush();
    test_barrier();
    test_fua();
    test_overwrite_while_destaging();
    test_cut();
    test_torn();
    test_torn_destage();
    test_torn_flash();
    test_battery();
    test_battery_destage();
    test_planned_cut();
    test_cut_after_flushes();
    test_cut_keeps_first();
    test_follow();
    test_lost();
    test_errors();
    test_switches();
    return 0;
}
