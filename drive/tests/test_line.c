/* Drives that share their power: what one of them loses it by, the other follows to the ns. */
#include "rig.h"

#include "../src/drive.h"

#include <semaphore.h>
#include <unistd.h>

#define SIZE (INT64_C(16) << 20)
#define PAGE 16 /* sectors */

struct written {
    struct operation operation; /* first */
    unsigned char data[PAGE * SECTOR_BYTES];
    int error;
    sem_t answered;
};

static char path[] = "/tmp/line-XXXXXX";
static struct drive wal;
static struct drive data;

static void answer(struct operation *o)
{
    struct written *w = (struct written *)o;

    w->error = o->request.error;
    sem_post(&w->answered);
}

/* Write a page, and wait; 0, or the errno of the answer. */
static int put(struct drive *d, int64_t sector, int fill)
{
    static struct written w;

    memset(w.data, fill, sizeof w.data);
    w.operation = (struct operation){
        .request = {.kind = REQUEST_WRITE, .sector = sector, .count = PAGE, .data = w.data},
        .deliver = answer,
    };
    sem_init(&w.answered, 0, 0);
    drive_submit(d, &w.operation);
    sem_wait(&w.answered);
    return w.error;
}

static int media(struct drive *d, int64_t sector)
{
    unsigned char byte;

    pthread_mutex_lock(&d->lock);
    sectordata_settle(&d->data);
    image_read(&d->data.image, sector * SECTOR_BYTES, 1, &byte);
    pthread_mutex_unlock(&d->lock);
    return byte;
}

/* A drive whose cache nobody empties unasked, so that nothing is ever due when it is idle. */
static void start(struct drive *d)
{
    struct params params;

    params_default(&params);
    CHECK(drive_init(d, &params, SIZE), "memory");
    model_set_write_cache(&d->model, CACHE_ON);
    model_set_destage(&d->model, false);
    CHECK(drive_start(d), "no thread");
    CHECK(drive_line(d, path) == NULL, "no line");
}

static void stop(struct drive *d)
{
    drive_stop(d);
    sectordata_free(&d->data);
    model_free(&d->model);
    free(d->lost);
}

static bool power(struct drive *d)
{
    bool on;

    drive_catch_up(d);
    pthread_mutex_lock(&d->lock);
    on = d->model.power;
    pthread_mutex_unlock(&d->lock);
    return on;
}

static struct cut last_cut(struct drive *d)
{
    struct cut cut;

    pthread_mutex_lock(&d->lock);
    cut = d->model.cut;
    pthread_mutex_unlock(&d->lock);
    return cut;
}

/* One drive's third write takes the power of both, with what each was told to keep. */
static void test_planned(void)
{
    struct cut_plan third = {.writes = 3, .keep.first = 2};
    struct cut_plan follow = {.follow = true, .keep.first = 1};

    CHECK_EQUAL(put(&data, 4000, 1), 0);
    CHECK_EQUAL(put(&data, 2000, 2), 0);
    drive_power_off(&data, &follow);
    drive_power_off(&wal, &third);
    CHECK_EQUAL(put(&wal, 300, 1), 0);
    CHECK_EQUAL(put(&wal, 200, 2), 0);
    CHECK(power(&data), "too early");
    CHECK_EQUAL(put(&wal, 100, 3), 0);
    CHECK(!power(&wal), "the power is on");
    CHECK(!power(&data), "the other drive has power");
    CHECK_EQUAL(last_cut(&wal).at, last_cut(&data).at);
    CHECK_EQUAL(last_cut(&wal).pieces, 3);
    CHECK_EQUAL(last_cut(&data).pieces, 2);
    CHECK_EQUAL(media(&wal, 300), 1);
    CHECK_EQUAL(media(&wal, 200), 2);
    CHECK_EQUAL(media(&wal, 100), 0);
    CHECK_EQUAL(media(&data, 4000), 1);
    CHECK_EQUAL(media(&data, 2000), 0);
    CHECK(put(&data, 0, 9) != 0 && put(&wal, 0, 9) != 0, "written without power");
}

/* What had failed before the power was on again counts no more, whoever is first. */
static void test_on_again(void)
{
    drive_power_on(&data);
    CHECK(power(&data), "cut once more");
    CHECK_EQUAL(put(&data, 600, 4), 0);
    drive_power_on(&wal);
    CHECK_EQUAL(put(&wal, 600, 4), 0);
    CHECK(power(&wal) && power(&data), "cut once more");
    CHECK_EQUAL(last_cut(&data).number, 1);
}

/* At once, by the other one, which keeps nothing without a plan. */
static void test_told(void)
{
    drive_power_off(&data, &(struct cut_plan){.keep.share = 1});
    CHECK(!power(&wal), "the other drive has power");
    CHECK_EQUAL(last_cut(&wal).at, last_cut(&data).at);
    CHECK_EQUAL(media(&data, 600), 4);
    CHECK_EQUAL(media(&wal, 600), 0);
    drive_power_on(&wal);
    drive_power_on(&data);
}

/* A drive that has left has a power of its own, and one that comes is not late for a failure. */
static void test_left(void)
{
    CHECK(drive_line(&data, NULL) == NULL, "cannot leave");
    drive_power_off(&wal, &(struct cut_plan){0});
    CHECK(power(&data), "cut, though it has left");
    CHECK(drive_line(&data, path) == NULL, "no line");
    CHECK(power(&data), "cut by what was before it came");
    drive_power_on(&wal);
    CHECK(drive_line(&data, "/nowhere/at/all") != NULL, "joined nothing");
    drive_power_off(&wal, &(struct cut_plan){0});
    CHECK(!power(&data), "a line that could not be joined took the place of the old one");
}

int main(void)
{
    int fd = mkstemp(path);

    CHECK(fd >= 0, "no file");
    close(fd);
    start(&wal);
    start(&data);
    test_planned();
    test_on_again();
    test_told();
    test_left();
    stop(&wal);
    stop(&data);
    unlink(path);
    return 0;
}
