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
    CHECK(rig.model.task == HEADS_DESTAGE, "not destaging");
    rig_write(&rig, 1008, 4, 2);
    CHECK(rig.model.task == HEADS_DESTAGE, "destaged too soon");
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
    model_power_off(&rig->model, keep, 1);
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
        if (rig.model.task == HEADS_FREE && model_dirty_bytes(&rig.model) == 0) {
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
    test_flush();
    test_barrier();
    test_fua();
    test_overwrite_while_destaging();
    test_cut();
    test_torn();
    test_torn_destage();
    test_switches();
    return 0;
}
