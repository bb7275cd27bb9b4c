/* Rig: a model with its content on a virtual clock, and the checks of the tests. */
#ifndef RIG_H
#define RIG_H

#include "../src/sectordata.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define US INT64_C(1000)

/* Fails the whole program, saying where and what was found. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQUAL(a, b)                                                                          \
    do {                                                                                           \
        int64_t a_ = (int64_t)(a), b_ = (int64_t)(b);                                              \
        CHECK(a_ == b_, "%s is %" PRId64 ", %s is %" PRId64, #a, a_, #b, b_);                      \
    } while (0)

#define CHECK_NEAR(a, b, share)                                                                    \
    do {                                                                                           \
        double a_ = (double)(a), b_ = (double)(b);                                                 \
        CHECK(fabs(a_ - b_) <= fabs(b_) * (share), "%s is %g, %s is %g", #a, a_, #b, b_);          \
    } while (0)

struct rig {
    struct params params;
    struct model model;
    struct sectordata data;
    int64_t now;
    int64_t open; /* submitted, not yet seen completed */
    void (*completed)(struct rig *rig, struct request *request);
};

/* Parameters are ata-2005 but for the assignments, which end with NULL. */
void rig_init(struct rig *rig, int64_t size, bool write_cache, const char *const *assignments);
void rig_free(struct rig *rig);

/*
 * A new request with its own buffer, every sector of a write filled with fill.
 * rig_free releases those nobody has released before.
 */
struct request *rig_request(enum request_kind kind, int64_t sector, int64_t count, int fill);
void rig_release(struct request *request);

void rig_submit(struct rig *rig, struct request *request);
void rig_advance(struct rig *rig, int64_t to);

/* Until nothing submitted is open. */
void rig_finish(struct rig *rig);

/* Until the drive has nothing left to do. */
void rig_rest(struct rig *rig);

/* Submit now, wait, return when it was done. */
int64_t rig_do(struct rig *rig, struct request *request);
int64_t rig_write(struct rig *rig, int64_t sector, int64_t count, int fill);
int64_t rig_read(struct rig *rig, int64_t sector, int64_t count);
int64_t rig_flush(struct rig *rig);

/* First byte of a sector as it is on the media. */
int rig_media(struct rig *rig, int64_t sector);

uint64_t rig_random(uint64_t *state);

#endif
