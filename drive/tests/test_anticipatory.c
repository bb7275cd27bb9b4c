/* The anticipatory elevator, on a drive whose every request takes 10 ms. */
#include "rig.h"

#define SIZE (INT64_C(2) << 30)
#define PAGE 16 /* sectors of 8 kB */
#define TAKES (10 * MS)
#define FAR INT64_C(3000000) /* a sector further from the others than the elevator goes back */

static const char *const flash[] = {"scheduler=anticipatory", "flash_bytes=2147483648",
                                    "flash_read_ns=10000000", "flash_program_ns=10000000",
                                    /* fast enough for a page to take no time */
                                    "flash_bytes_per_s=100000000000", "command_overhead_ns=0",
                                    "read_segments=0", NULL};

/* A drive like that, but for two parameters, or one, or none (NULL). */
static void set_up(struct rig *rig, const char *but, const char *and)
{
    const char *assignments[16];
    int count = 0;

    while (flash[count] != NULL) {
        assignments[count] = flash[count];
        count++;
    }
    assignments[count++] = but;
    if (but != NULL)
        assignments[count++] = and;
    assignments[count] = NULL;
    rig_init(rig, SIZE, false, assignments);
}

static struct request *submit(struct rig *rig, enum request_kind kind, int64_t sector)
{
    struct request *r = rig_request(kind, sector, kind == REQUEST_FLUSH ? 0 : PAGE, 1);

    rig_submit(rig, r);
    rig_advance(rig, rig->now);
    return r;
}

static struct request *submit_read(struct rig *rig, int64_t sector)
{
    return submit(rig, REQUEST_READ, sector);
}

static void next_event(struct rig *rig)
{
    int64_t next = model_next_event(&rig->model);

    CHECK(next < 20000 * MS, "what waits is forgotten");
    rig_advance(rig, next);
}

/* Until that one is completed. */
static void wait_for(struct rig *rig, const struct request *r)
{
    while (r->done == r->arrival)
        next_event(rig);
}

/* With the head at 1500000: which of two reads goes first. */
static int64_t first_of(int64_t one, int64_t other)
{
    struct rig rig;
    struct request *r[2];
    int64_t first;

    set_up(&rig, "antic_expire_ns=0", NULL);
    submit_read(&rig, 1500000 - PAGE);
    r[0] = submit_read(&rig, one);
    r[1] = submit_read(&rig, other);
    rig_finish(&rig);
    first = r[0]->done < r[1]->done ? one : other;
    rig_free(&rig);
    return first;
}

/* Upwards; back if that is less than half as far, and not too far. */
static void test_sweep(void)
{
    CHECK_EQUAL(first_of(1501000, 1500500), 1500500);
    CHECK_EQUAL(first_of(1501000, 1499501), 1499501);
    CHECK_EQUAL(first_of(1501000, 1499500), 1501000);
    CHECK_EQUAL(first_of(3600000, 500000), 500000);
    CHECK_EQUAL(first_of(3600000, 451424), 451424); /* 1048576 back */
    CHECK_EQUAL(first_of(3600000, 451423), 3600000);
    /* With nothing above: the nearest, but the lowest if it is too far. */
    CHECK_EQUAL(first_of(500000, 1400000), 1400000);
    CHECK_EQUAL(first_of(400000, 300000), 300000);
}

/* What has been completed of two reads is followed by another one, 100 sectors on. */
static void keep_reading(struct rig *rig, struct request *reads[2], int64_t *sector)
{
    next_event(rig);
    for (int i = 0; i < 2; i++)
        if (reads[i]->done > reads[i]->arrival)
            reads[i] = submit_read(rig, *sector += 100);
}

/* Reads that never end, two of them always waiting, and writes that come when they have begun. */
static void test_batches(void)
{
    enum { WRITES = 40 };
    struct rig rig;
    struct request *write[WRITES];
    struct request *reads[2];
    int64_t sector = 0;
    int64_t number[4] = {0}; /* of writes, in batches */
    int64_t batch = -1;
    int64_t end;

    set_up(&rig, "antic_expire_ns=0", NULL);
    submit_read(&rig, sector);
    for (int i = 0; i < 2; i++)
        reads[i] = submit_read(&rig, sector += 100);
    while (rig.now < 200 * MS)
        keep_reading(&rig, reads, &sector);
    end = rig.now;
    for (int i = 0; i < WRITES; i++)
        write[i] = submit(&rig, REQUEST_WRITE, FAR + i * 100);
    while (rig.open > 2)
        keep_reading(&rig, reads, &sector);
    for (int i = 0; i < WRITES; i++) {
        if (i == 0 || write[i]->start - end > TAKES / 2) {
            CHECK(++batch < 4, "more batches");
            /* The reads before it had their time. */
            CHECK_NEAR(write[i]->start - end, 500 * MS, 0.001);
        }
        number[batch]++;
        end = write[i]->done;
    }
    /* 125 ms are 12 writes to begin with; they took 120, 13 took 130, and so on. */
    CHECK_EQUAL(number[0], 12);
    CHECK_EQUAL(number[1], 13);
    CHECK_EQUAL(number[2], 12);
    CHECK_EQUAL(number[3], 3);
    rig_free(&rig);
}

/* Writes that are fast make longer batches, and slow ones shorter. */
static void test_length(void)
{
    static const struct {
        const char *takes;
        int64_t batches[4];
    } cases[] = {
        {"flash_program_ns=1000000", {12, 24, 48, 49}},
        {"flash_program_ns=40000000", {4, 4, 4, 4}},
    };

    for (int k = 0; k < 2; k++) {
        struct rig rig;
        struct request *write[150];
        int64_t batch = 0;
        int64_t number[64] = {0};

        set_up(&rig, cases[k].takes, NULL);
        submit_read(&rig, 0);
        for (int i = 0; i < 150; i++)
            write[i] = submit(&rig, REQUEST_WRITE, FAR + i * 100);
        for (int i = 0; i < 150; i++) {
            wait_for(&rig, write[i]);
            /* A read waits for the end of every batch. */
            if (i == 0 || write[i]->start > write[i - 1]->done)
                submit_read(&rig, i * 100), batch += i > 0;
            number[batch]++;
        }
        for (int i = 0; i < 4; i++)
            CHECK_EQUAL(number[i], cases[k].batches[i]);
        rig_free(&rig);
    }
}

/* One that the sweep passes by again and again goes first when it has waited for 125 ms. */
static void test_deadlines(void)
{
    struct rig rig;
    struct request *passed_by;
    struct request *ahead[2];
    int64_t sector = FAR;

    set_up(&rig, "antic_expire_ns=0", NULL);
    submit_read(&rig, sector);
    passed_by = submit_read(&rig, 0);
    for (int i = 0; i < 2; i++)
        ahead[i] = submit_read(&rig, sector += 100);
    while (passed_by->done == passed_by->arrival)
        keep_reading(&rig, ahead, &sector);
    /* Decided every 10 ms: 130 is the first beyond 125. */
    CHECK_NEAR(passed_by->start - passed_by->arrival, 130 * MS, 0.001);
    rig_free(&rig);
}

/* A page after the other of a file, each a moment after the one before; returns the last. */
static struct request *read_in_sequence(struct rig *rig, int pages, int64_t think)
{
    struct request *r = NULL;

    for (int i = 0; i < pages; i++) {
        if (r != NULL)
            rig_advance(rig, rig->now + think);
        r = submit_read(rig, 100000 + i * PAGE);
        wait_for(rig, r);
    }
    return r;
}

/* How long another request, which comes meanwhile, waits after the last read of a sequence. */
static int64_t held_up(const char *but, int pages, int64_t think, enum request_kind kind,
                       int64_t sector)
{
    struct rig rig;
    struct request *last;
    struct request *other;
    int64_t waited;

    set_up(&rig, but, NULL);
    read_in_sequence(&rig, pages - 1, think);
    if (pages > 1)
        rig_advance(&rig, rig.now + think);
    last = submit_read(&rig, 100000 + (pages - 1) * PAGE);
    other = submit(&rig, kind, sector);
    rig_finish(&rig);
    waited = other->start - last->done;
    rig_free(&rig);
    return waited;
}

/* The drive is kept idle for readers that come back soon, and for no others. */
static void test_anticipation(void)
{
    CHECK_EQUAL(held_up(NULL, 3, 1 * MS, REQUEST_READ, FAR), 6 * MS);
    CHECK_EQUAL(held_up(NULL, 3, 1 * MS, REQUEST_WRITE, FAR), 6 * MS);
    CHECK_EQUAL(held_up("antic_expire_ns=2000000", 3, 1 * MS, REQUEST_READ, FAR), 2 * MS);
    CHECK_EQUAL(held_up("antic_expire_ns=0", 3, 1 * MS, REQUEST_READ, FAR), 0);
    /* Who has read but once may never do so again; who thinks for long is not waited for. */
    CHECK_EQUAL(held_up(NULL, 1, 1 * MS, REQUEST_READ, FAR), 0);
    CHECK_EQUAL(held_up(NULL, 2, 1 * MS, REQUEST_READ, FAR), 6 * MS);
    CHECK_EQUAL(held_up(NULL, 3, 6 * MS, REQUEST_READ, FAR), 6 * MS);
    CHECK_EQUAL(held_up(NULL, 3, 7 * MS, REQUEST_READ, FAR), 0);
    /* Another's read that is close is as good: to 8192 sectors ahead, and half of that back. */
    CHECK_EQUAL(held_up(NULL, 3, 1 * MS, REQUEST_READ, 100000 + 3 * PAGE + 8192), 0);
    CHECK_EQUAL(held_up(NULL, 3, 1 * MS, REQUEST_READ, 100000 + 3 * PAGE + 8193), 6 * MS);
    CHECK_EQUAL(held_up(NULL, 3, 1 * MS, REQUEST_READ, 100000 + 3 * PAGE - 4096), 0);
    CHECK_EQUAL(held_up(NULL, 3, 1 * MS, REQUEST_READ, 100000 + 3 * PAGE - 4097), 6 * MS);
}

/* What is expected comes: before others that wait, and they wait for its successor, too. */
static void test_what_was_expected(void)
{
    struct rig rig;
    struct request *other;
    struct request *r;

    set_up(&rig, NULL, NULL);
    r = read_in_sequence(&rig, 3, 1 * MS);
    other = submit_read(&rig, FAR);
    for (int i = 3; i < 6; i++) {
        rig_advance(&rig, rig.now + 1 * MS);
        r = submit_read(&rig, 100000 + i * PAGE);
        CHECK_EQUAL(r->start, r->arrival);
        wait_for(&rig, r);
        CHECK_EQUAL(r->start, r->arrival);
    }
    wait_for(&rig, other);
    CHECK_EQUAL(other->start - r->done, 6 * MS);
    rig_free(&rig);
}

/* Readers are told from each other by where they read. */
static void test_two_readers(void)
{
    struct rig rig;
    struct request *r[2] = {NULL, NULL};
    int64_t order[12];
    int64_t count = 0;
    int64_t pages[2] = {0, 0};
    int64_t wake[2] = {0, 0};

    set_up(&rig, NULL, NULL);
    rig_advance(&rig, 1 * MS);
    while (count < 12) {
        int64_t next = model_next_event(&rig.model);

        for (int i = 0; i < 2; i++) {
            if (r[i] != NULL && r[i]->done > r[i]->arrival) {
                order[count++ % 12] = i;
                r[i] = NULL;
                wake[i] = rig.now + 2 * MS;
            }
            if (r[i] == NULL && wake[i] <= rig.now)
                r[i] = submit_read(&rig, i * FAR + pages[i]++ * PAGE);
            if (r[i] == NULL && wake[i] < next)
                next = wake[i];
        }
        if (model_next_event(&rig.model) < next)
            next = model_next_event(&rig.model);
        CHECK(next < 20000 * MS, "what waits is forgotten");
        rig_advance(&rig, next);
    }
    /* Until one is known to come back they take turns; then it keeps the drive until 125 ms. */
    CHECK_EQUAL(order[0], 0);
    CHECK_EQUAL(order[1], 1);
    for (int i = 3; i < 9; i++)
        CHECK_EQUAL(order[i], order[2]);
    rig_free(&rig);
}

/* Behind a flush nothing can come before what waits, so that there is nothing to expect. */
static void test_flush(void)
{
    struct rig rig;
    struct request *last;
    struct request *other;
    struct request *flush;

    set_up(&rig, NULL, NULL);
    read_in_sequence(&rig, 2, 1 * MS);
    last = submit_read(&rig, 100000 + 2 * PAGE);
    other = submit_read(&rig, FAR);
    flush = submit(&rig, REQUEST_FLUSH, 0);
    rig_finish(&rig);
    CHECK_EQUAL(other->start, last->done);
    CHECK_EQUAL(flush->start, other->done);
    rig_free(&rig);
}

/*
 * Of a drive with a queue: a batch begins when the other has ended, and reads go one by
 * one if the next of one of them may be expected.
 */
static void test_queue(const char *but, bool together)
{
    struct rig rig;
    struct request *read[2];
    struct request *write[2];
    struct request *again;

    set_up(&rig, "queue_depth=8", but);
    submit_read(&rig, 0);
    for (int i = 0; i < 2; i++)
        read[i] = submit_read(&rig, (i + 1) * 100000);
    for (int i = 0; i < 2; i++)
        write[i] = submit(&rig, REQUEST_WRITE, FAR + i * 100000);
    wait_for(&rig, read[1]);
    again = submit_read(&rig, 0);
    rig_finish(&rig);
    CHECK_EQUAL(read[1]->start, together ? read[0]->start : read[0]->done);
    CHECK_EQUAL(write[0]->start, read[1]->done);
    CHECK_EQUAL(write[1]->start, write[0]->start);
    CHECK_EQUAL(again->start, write[1]->done);
    rig_free(&rig);
}

int main(void)
{
    test_sweep();
    test_batches();
    test_length();
    test_deadlines();
    test_anticipation();
    test_what_was_expected();
    test_two_readers();
    test_flush();
    test_queue(NULL, false);
    test_queue("antic_expire_ns=0", true);
    return 0;
}
