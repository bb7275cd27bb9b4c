#include "trace.h"

#include "params.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef RECORDS /* fewer where it is fuzzed */
#define RECORDS 65536
#endif
#define FLUSH_NS 100000000

/* As in TRACE.md; the fields are in host order, little-endian wherever this runs. */
struct header {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes;
    int64_t revolution_ns;
    int64_t monotonic_ns; /* the same moment on both clocks */
    int64_t realtime_ns;
    uint8_t reserved[24];
};

struct record {
    uint64_t sequence;
    uint64_t command;
    int64_t arrival;
    int64_t start;
    int64_t done;
    int64_t delivered;
    int64_t overhead_ns;
    int64_t interface_ns;
    int64_t seek_ns;
    int64_t rotate_ns;
    int64_t transfer_ns;
    int64_t sector;
    uint32_t count;
    uint16_t kind;
    uint16_t flags;
};

_Static_assert(sizeof(struct header) == 64, "TRACE.md says 64");
_Static_assert(sizeof(struct record) == 104, "TRACE.md says 104");

struct trace {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    FILE *file;
    bool stop;
    uint64_t lost;
    size_t used; /* of filling */
    struct record *filling;
    struct record *writing;
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

static void *write_out(void *argument)
{
    struct trace *t = argument;
    bool stop;

    do {
        struct timespec until;
        struct record *full;
        size_t count;

        pthread_mutex_lock(&t->lock);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += FLUSH_NS;
        if (until.tv_nsec >= NS_PER_SECOND) {
            until.tv_sec++;
            until.tv_nsec -= NS_PER_SECOND;
        }
        while (!t->stop && t->used < RECORDS / 2)
            if (pthread_cond_timedwait(&t->wake, &t->lock, &until) != 0)
                break;
        full = t->filling;
        count = t->used;
        t->filling = t->writing;
        t->writing = full;
        t->used = 0;
        stop = t->stop;
        pthread_mutex_unlock(&t->lock);
        if (count > 0 &&
            (fwrite(full, sizeof *full, count, t->file) != count || fflush(t->file) != 0)) {
            pthread_mutex_lock(&t->lock);
            t->lost += count; /* a full disk: at most; part of them may be there */
            pthread_mutex_unlock(&t->lock);
        }
    } while (!stop);
    return NULL;
}

struct trace *trace_open(const char *path, int64_t revolution_ns)
{
    struct trace *t = calloc(1, sizeof *t);
    struct header h = {
        .magic = "WALDRIVE",
        .version = 1,
        .record_bytes = sizeof(struct record),
        .revolution_ns = revolution_ns,
        .monotonic_ns = clock_ns(CLOCK_MONOTONIC),
        .realtime_ns = clock_ns(CLOCK_REALTIME),
    };

    if (t == NULL)
        return NULL;
    t->filling = malloc(RECORDS * sizeof(struct record));
    t->writing = malloc(RECORDS * sizeof(struct record));
    t->file = fopen(path, "we");
    if (t->filling != NULL && t->writing != NULL && t->file != NULL &&
        fwrite(&h, sizeof h, 1, t->file) == 1 && fflush(t->file) == 0) {
        pthread_mutex_init(&t->lock, NULL);
        pthread_cond_init(&t->wake, NULL);
        if (pthread_create(&t->thread, NULL, write_out, t) == 0)
            return t;
    }
    if (t->file != NULL)
        fclose(t->file);
    free(t->filling);
    free(t->writing);
    free(t);
    return NULL;
}

void trace_record(struct trace *t, const struct request *r, int64_t delivered)
{
    pthread_mutex_lock(&t->lock);
    if (t->used == RECORDS) {
        t->lost++;
    } else {
        t->filling[t->used++] = (struct record){
            .sequence = r->sequence,
            .command = r->command,
            .arrival = r->arrival,
            .start = r->start,
            .done = r->done,
            .delivered = delivered,
            .overhead_ns = r->overhead_ns,
            .interface_ns = r->interface_ns,
            .seek_ns = r->seek_ns,
            .rotate_ns = r->rotate_ns,
            .transfer_ns = r->transfer_ns,
            .sector = r->sector,
            .count = (uint32_t)r->count,
            .kind = (uint16_t)r->kind,
            .flags = (uint16_t)r->flags,
        };
        if (t->used == RECORDS / 2)
            pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
}

uint64_t trace_close(struct trace *t)
{
    uint64_t lost;

    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    lost = t->lost;
    fclose(t->file);
    free(t->filling);
    free(t->writing);
    free(t);
    return lost;
}
