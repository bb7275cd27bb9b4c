/*
 * Random requests, switches and power cuts against a reference of the content:
 * every read returns the newest write submitted before it; after a cut every
 * sector holds a version that is allowed to be there, and no sector is half of
 * one and half of another.
 */
#include "rig.h"

#define SECTORS 4096
#define SIZE (SECTORS * SECTOR_BYTES)
#define VERSIONS 1000000

/* Content of a sector is its version number, repeated. */
static uint32_t newest[SECTORS]; /* submitted */
static uint32_t acknowledged[SECTORS];
static uint32_t durable[SECTORS]; /* must survive a cut */
static uint32_t frozen[SECTORS];  /* of the snapshot */
static uint32_t version;
static bool cut_happened;

/* What a request promises once it is completed. */
struct promise {
    struct request request;
    uint32_t *expected; /* a read: of each sector; a flush: of all sectors */
    uint32_t first;     /* a write: version of its first sector, then rising */
    bool through;       /* a write that the cache must not take */
    bool doomed;        /* it shall fail, and change nothing */
    uint64_t moves;     /* a lasting one: how many must be done before it may go */
    struct promise *next;
};

static struct promise *lasting; /* completed, and not to be released yet */

static void fill(struct promise *p)
{
    for (int64_t i = 0; i < p->request.count; i++) {
        uint32_t *sector = (uint32_t *)p->request.data + i * (SECTOR_BYTES / 4);

        for (int k = 0; k < SECTOR_BYTES / 4; k++)
            sector[k] = p->first + (uint32_t)i;
    }
}

static uint32_t version_of(const uint32_t *sector, int64_t number)
{
    for (int k = 1; k < SECTOR_BYTES / 4; k++)
        CHECK(sector[k] == sector[0], "sector %" PRId64 " has two versions", number);
    return sector[0];
}

static void remember_durable(const struct promise *p)
{
    const struct request *r = &p->request;

    for (int64_t i = 0; i < r->count; i++)
        if (durable[r->sector + i] < p->first + (uint32_t)i)
            durable[r->sector + i] = p->first + (uint32_t)i;
}

static void release(struct promise *p)
{
    memset(p->request.data, 0xdb, (size_t)(p->request.count * SECTOR_BYTES));
    free(p->request.data);
    free(p);
}

/* What has been moved may be released, and nothing else. */
static void release_moved(const struct rig *rig)
{
    struct promise **link = &lasting;
    struct promise *p;

    while ((p = *link) != NULL) {
        if (p->moves <= rig->data.moves.done) {
            *link = p->next;
            release(p);
        } else {
            link = &p->next;
        }
    }
}

static void on_completed(struct rig *rig, struct request *r)
{
    struct promise *p = (struct promise *)r;

    CHECK(!(p->through && r->flags & FLAG_CACHED), "cached against the promise");
    if (p->doomed) {
        CHECK(r->error != 0, "did not fail as asked for");
    } else if (r->error != 0) {
        CHECK(cut_happened, "failed with the power on");
    } else if (r->kind == REQUEST_READ) {
        for (int64_t i = 0; i < r->count; i++)
            CHECK_EQUAL(version_of((uint32_t *)r->data + i * (SECTOR_BYTES / 4), r->sector + i),
                        p->expected[i]);
    } else if (r->kind == REQUEST_WRITE) {
        for (int64_t i = 0; i < r->count; i++)
            if (acknowledged[r->sector + i] < p->first + (uint32_t)i)
                acknowledged[r->sector + i] = p->first + (uint32_t)i;
        if (!(r->flags & FLAG_CACHED) || rig->model.write_cache == CACHE_BATTERY)
            remember_durable(p);
    } else if (r->kind == REQUEST_FLUSH) {
        for (int64_t i = 0; i < SECTORS; i++)
            if (durable[i] < p->expected[i])
                durable[i] = p->expected[i];
    }
    free(p->expected);
    if (!r->lasting) {
        release(p);
        return;
    }
    p->moves = rig->data.moves.added;
    p->next = lasting;
    lasting = p;
}

static struct promise *submit(struct rig *rig, uint64_t *seed, enum request_kind kind, bool doom)
{
    struct promise *p = calloc(1, sizeof *p);
    struct request *r = &p->request;

    r->kind = kind;
    r->lasting = rig_random(seed) % 4 != 0;
    if (kind == REQUEST_FLUSH) {
        r->data = malloc(1);
        r->honest = rig_random(seed) % 2; /* the drive does not lie */
        p->expected = malloc(sizeof newest);
        /* One that others may overtake is only for what has been acknowledged. */
        memcpy(p->expected, rig->params.queued_flush ? acknowledged : newest, sizeof newest);
    } else {
        r->count = (int64_t)(rig_random(seed) % 48) + 1;
        r->sector = (int64_t)(rig_random(seed) % (uint64_t)(SECTORS - r->count));
        r->data = malloc((size_t)(r->count * SECTOR_BYTES));
    }
    if (kind == REQUEST_READ) {
        p->expected = malloc((size_t)r->count * sizeof *p->expected);
        memcpy(p->expected, newest + r->sector, (size_t)r->count * sizeof *p->expected);
    } else if (kind == REQUEST_WRITE) {
        r->fua = rig_random(seed) % 8 == 0;
        p->through = (r->fua && rig->model.write_cache != CACHE_BATTERY) || !rig->model.timing;
        p->first = version + 1;
        version += (uint32_t)r->count;
        for (int64_t i = 0; i < r->count && !doom; i++)
            newest[r->sector + i] = p->first + (uint32_t)i;
        fill(p);
    }
    if (doom) {
        struct errors errors = {
            .kinds = 1u << kind, .end = INT64_MAX, .times = 1, .until = MODEL_NEVER};

        r->honest = false;
        p->doomed = true;
        model_set_errors(&rig->model, &errors);
    }
    rig_submit(rig, r);
    return p;
}

/* Only a flush tells what the cache is to hold after the switch. */
static void switch_cache(struct rig *rig, uint64_t *seed, enum write_cache mode)
{
    rig_finish(rig);
    submit(rig, seed, REQUEST_FLUSH, false)->request.honest = true;
    model_set_write_cache(&rig->model, mode);
    rig_finish(rig);
    CHECK(rig->model.write_cache == CACHE_ON || model_dirty_bytes(&rig->model) == 0, "dirty");
}

static uint32_t media_version(struct rig *rig, int64_t sector)
{
    uint32_t data[SECTOR_BYTES / 4];

    sectordata_settle(&rig->data);
    image_read(&rig->data.image, sector * SECTOR_BYTES, SECTOR_BYTES, data);
    return version_of(data, sector);
}

/* As the drive would answer once the power is on again: the battery has kept the cache. */
static uint32_t newest_version(const struct rig *rig, int64_t sector)
{
    uint32_t data[SECTOR_BYTES / 4];
    struct request r = {.kind = REQUEST_READ, .sector = sector, .count = 1, .data = data};

    rig->data.medium.read(rig->data.medium.context, &r);
    return version_of(data, sector);
}

static struct keeping keeping(uint64_t *seed)
{
    return (struct keeping){
        .share = (double)(rig_random(seed) % 3) / 2,
        .first = (int64_t)(rig_random(seed) % 8),
        .seed = rig_random(seed),
    };
}

/* Versions rise with every submission, so allowed is: from the durable to the newest. */
static void check_after_cut(struct rig *rig)
{
    for (int64_t i = 0; i < SECTORS; i++) {
        uint32_t survivor = rig->model.write_cache == CACHE_BATTERY ? newest_version(rig, i)
                                                                    : media_version(rig, i);

        CHECK(survivor >= durable[i] && survivor <= newest[i],
              "sector %" PRId64 ": version %u, durable %u, newest %u", i, survivor, durable[i],
              newest[i]);
        newest[i] = durable[i] = acknowledged[i] = survivor;
    }
}

static void step(struct rig *rig, uint64_t *seed)
{
    uint64_t dice = rig_random(seed) % 1000;

    if (rig_random(seed) % 2)
        moves_some(&rig->data.moves, (int64_t)(rig_random(seed) % 4 + 1) * IMAGE_PAGE);
    release_moved(rig);
    if (dice < 400) {
        submit(rig, seed, REQUEST_WRITE, false);
    } else if (dice < 650) {
        submit(rig, seed, REQUEST_READ, false);
    } else if (dice < 700) {
        submit(rig, seed, REQUEST_FLUSH, false);
    } else if (dice < 960) {
        rig_advance(rig, rig->now + (int64_t)(rig_random(seed) % (30 * MS)));
    } else if (dice < 970) {
        model_set_destage(&rig->model, rig_random(seed) % 2);
    } else if (dice < 980) {
        switch_cache(rig, seed, (enum write_cache)(rig_random(seed) % 3));
    } else if (dice < 982) {
        submit(rig, seed, (enum request_kind)(rig_random(seed) % 3), true);
    } else if (dice < 985) {
        rig_finish(rig);
        model_settle(&rig->model);
        memcpy(durable, newest, sizeof durable);
        model_set_timing(&rig->model, rig_random(seed) % 4 != 0);
    } else if (dice < 988) {
        rig_finish(rig);
        model_settle(&rig->model);
        sectordata_snapshot(&rig->data);
        memcpy(durable, newest, sizeof durable);
        memcpy(frozen, newest, sizeof frozen);
    } else if (dice < 991 && rig->data.image.snapshot) {
        rig_finish(rig);
        model_forget_cache(&rig->model);
        CHECK(sectordata_restore(&rig->data), "no snapshot");
        memcpy(newest, frozen, sizeof newest);
        memcpy(acknowledged, frozen, sizeof newest);
        memcpy(durable, frozen, sizeof durable);
    } else if (dice < 993) {
        struct cut_plan plan = {.writes = (int64_t)(rig_random(seed) % 20),
                                .within_ns = (int64_t)(rig_random(seed) % 40) * MS,
                                .keep = keeping(seed)};

        cut_happened = true;
        rig_advance(rig, rig->now);
        model_plan_cut(&rig->model, &plan);
        while (rig->model.power) {
            submit(rig, seed, rig_random(seed) % 8 == 0 ? REQUEST_FLUSH : REQUEST_WRITE, false);
            rig_advance(rig, rig->now + (int64_t)(rig_random(seed) % (10 * MS)));
        }
        rig_finish(rig);
        check_after_cut(rig);
        model_power_on(&rig->model);
        cut_happened = false;
    } else {
        struct keeping keep;

        cut_happened = true;
        /* In the middle of whatever is under way. */
        model_catch_up(&rig->model, rig->now);
        rig_advance(rig, rig->now);
        keep = keeping(seed);
        model_power_off(&rig->model, &keep);
        rig_advance(rig, rig->now);
        CHECK_EQUAL(rig->open, 0);
        check_after_cut(rig);
        submit(rig, seed, REQUEST_READ, false);
        rig_finish(rig);
        model_power_on(&rig->model);
        cut_happened = false;
    }
}

static void run(uint64_t seed, const char *const *assignments)
{
    struct rig rig;
    struct counters *c = &rig.model.counters;

    memset(newest, 0, sizeof newest);
    memset(durable, 0, sizeof durable);
    memset(acknowledged, 0, sizeof acknowledged);
    version = 0;
    rig_init(&rig, SIZE, seed % 2, assignments);
    rig.completed = on_completed;
    for (int i = 0; i < 6000; i++)
        step(&rig, &seed);
    model_set_destage(&rig.model, true);
    rig_finish(&rig);
    rig_rest(&rig);
    for (int64_t i = 0; i < SECTORS; i++)
        CHECK_EQUAL(media_version(&rig, i), newest[i]);
    CHECK_EQUAL(c->media_ns, c->seek_ns + c->rotate_ns + c->transfer_ns);
    CHECK_EQUAL(rig.model.in_flight, 0);
    release_moved(&rig);
    CHECK(lasting == NULL, "data outlive their moves");
    rig_free(&rig);
}

int main(int argc, char **argv)
{
    static const char *const tiny[] = {"cylinders=400",           "zone_sectors_per_track=61,37,23",
                                       "cache_bytes=131072",      "merge_bytes=32768",
                                       "read_segment_bytes=8192", NULL};
    static const char *const fifo[] = {"cylinders=400", "zone_sectors_per_track=61,37,23",
                                       "scheduler=fifo", NULL};
    static const char *const anticipatory[] = {"cylinders=400",
                                               "zone_sectors_per_track=61,37,23",
                                               "scheduler=anticipatory",
                                               "read_expire_ns=40000000",
                                               "write_expire_ns=60000000",
                                               "read_batch_expire_ns=90000000",
                                               "write_batch_expire_ns=30000000",
                                               "cache_bytes=131072",
                                               "merge_bytes=32768",
                                               NULL};
    static const char *const anticipatory_queued[] = {
        "cylinders=400",          "zone_sectors_per_track=61,37,23",
        "scheduler=anticipatory", "cache_bytes=131072",
        "merge_bytes=32768",      "queue_depth=8",
        "queued_flush=1",         NULL};
    static const char *const queued[] = {"cylinders=400",
                                         "zone_sectors_per_track=61,37,23",
                                         "cache_bytes=131072",
                                         "merge_bytes=32768",
                                         "read_segment_bytes=8192",
                                         "queue_depth=8",
                                         NULL};
    static const char *const striped[] = {"cylinders=400",
                                          "zone_sectors_per_track=61,37,23",
                                          "cache_bytes=131072",
                                          "merge_bytes=32768",
                                          "read_segments=0",
                                          "queue_depth=8",
                                          "units=3",
                                          "stripe_bytes=8192",
                                          "queued_flush=1",
                                          NULL};
    static const char *const flash[] = {"cache_bytes=131072",
                                        "merge_bytes=32768",
                                        "read_segments=0",
                                        "queue_depth=32",
                                        "units=8",
                                        "stripe_bytes=4096",
                                        "queued_flush=1",
                                        "flash_bytes=1048576",
                                        "flash_read_ns=80000",
                                        "flash_program_ns=500000",
                                        "destage_idle_ns=100000",
                                        NULL};
    static const char *const constant[] = {"constant_latency_ns=3000000", NULL};
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 20;

    for (uint64_t seed = 1; seed <= rounds; seed++) {
        run(seed * 2654435761u, tiny);
        run(seed * 2654435761u + 1, fifo);
        run(seed * 2654435761u + 2, queued);
        run(seed * 2654435761u + 3, striped);
        run(seed * 2654435761u + 4, flash);
        run(seed * 2654435761u + 5, anticipatory);
        run(seed * 2654435761u + 6, anticipatory_queued);
        if (seed % 4 == 0)
            run(seed, constant);
    }
    return 0;
}
