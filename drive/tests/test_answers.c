/*
 * The drive for threads: whoever asked is answered before the bytes are copied,
 * and may have its memory back when they have been. No time decides here.
 */
#include "rig.h"

#include "../src/drive.h"

#include <semaphore.h>

#define SIZE (INT64_C(64) << 20)
#define REQUESTS 16
#define LARGE 512 /* sectors */

struct asked {
    struct operation operation; /* first */
    unsigned char *data;
    bool early; /* its bytes were not on the media when it was answered */
    sem_t answered;
    sem_t released;
};

static struct drive drive;
static struct asked asked[REQUESTS];

static void answer(struct operation *o)
{
    struct asked *a = (struct asked *)o;
    unsigned char byte;

    /* Nobody moves bytes meanwhile. */
    image_read(&drive.data.image, a->operation.request.sector * SECTOR_BYTES, 1, &byte);
    a->early = byte == 0;
    sem_post(&a->answered);
}

static void release(struct operation *o)
{
    struct asked *a = (struct asked *)o;

    memset(a->data, 0xdb, (size_t)(a->operation.request.count * SECTOR_BYTES));
    free(a->data);
    sem_post(&a->released);
}

static void ask(struct asked *a, enum request_kind kind, int64_t sector, int64_t count, int fill)
{
    a->data = malloc((size_t)(count * SECTOR_BYTES));
    memset(a->data, fill, (size_t)(count * SECTOR_BYTES));
    a->operation = (struct operation){
        .request =
            {
                .kind = kind,
                .sector = sector,
                .count = count,
                .data = a->data,
                .lasting = true,
            },
        .deliver = answer,
        .release = release,
    };
    sem_init(&a->answered, 0, 0);
    sem_init(&a->released, 0, 0);
    drive_submit(&drive, &a->operation);
}

int main(void)
{
    char error[512];
    struct params params;
    struct iovec piece[REQUESTS];

    params_default(&params);
    CHECK(params_set(&params, "constant_latency_ns=20000000", error, sizeof error), "%s", error);
    CHECK(drive_init(&drive, &params, SIZE), "memory");
    CHECK(drive_start(&drive), "no thread");
    for (int i = 0; i < REQUESTS; i++)
        ask(&asked[i], REQUEST_WRITE, i * LARGE, i % 2 == 0 ? LARGE : 1, i + 1);
    for (int i = 0; i < REQUESTS; i++)
        sem_wait(&asked[i].answered);
    for (int i = 0; i < REQUESTS; i++) {
        sem_wait(&asked[i].released);
        CHECK(asked[i].early, "write %d was copied before its answer", i);
    }
    CHECK(!moves_pending(&drive.data.moves), "released before it was copied");
    for (int i = 0; i < REQUESTS; i++) {
        unsigned char last;
        int64_t count = i % 2 == 0 ? LARGE : 1;

        CHECK(sectordata_pieces(&drive.data, i * LARGE, count, piece, REQUESTS) == 1, "pieces");
        last = ((unsigned char *)piece[0].iov_base)[count * SECTOR_BYTES - 1];
        CHECK_EQUAL(last, i + 1);
    }
    drive_stop(&drive);
    sectordata_free(&drive.data);
    model_free(&drive.model);
    return 0;
}
