/* Drive: the model and its content in real time, for several threads. */
#ifndef DRIVE_H
#define DRIVE_H

#include "sectordata.h"
#include "histogram.h"
#include "line.h"
#include "model.h"
#include "trace.h"

#include <pthread.h>

/* A request and how its completion is delivered. */
struct operation {
    struct request request; /* first: the model hands requests back */
    /* It may be gone when this returns, unless it is lasting: then release ends it. */
    void (*deliver)(struct operation *operation);
    void (*release)(struct operation *operation);
    uint64_t moves; /* how many have to be done before the release */
};

/* Sectors in a row. */
struct extent {
    int64_t sector;
    int64_t count;
};

struct drive {
    pthread_mutex_t lock; /* over everything but what is said below */
    pthread_cond_t wake;
    pthread_t timer;
    bool stop;
    bool held; /* requests wait for `admitting` before they arrive */
    pthread_cond_t admitting;
    bool realtime;
    int64_t armed; /* when the timer thread looks again */
    int64_t size;
    struct model model;
    struct sectordata data;
    int answering;                 /* threads that deliver what they saw completed */
    struct request_list delivered; /* lasting ones, not yet released */
    struct extent *lost;           /* by power cut number lost_cut */
    size_t lost_count;
    size_t lost_room;
    int64_t lost_cut;
    struct line *line; /* NULL: a power of its own */
    char line_path[256];
    int64_t powered;   /* since when it has joined the line, or the power has been on */
    int64_t cuts_told; /* the last power cut that the line knows of */

    pthread_mutex_t record_lock; /* over the rest; taken after lock, if both */
    struct histogram lateness;
    struct trace *trace;
    char trace_path[256];
    uint64_t trace_lost;
};

int64_t drive_clock(void);

/* False if memory is short. */
bool drive_init(struct drive *d, const struct params *p, int64_t size);
/* The timer thread; after fork, signals blocked. False if it cannot be created. */
bool drive_start(struct drive *d);
void drive_stop(struct drive *d);

/* Whatever has happened by now has happened: before it is reported. */
void drive_catch_up(struct drive *d);

/* A request arrives now. It may be delivered before this returns. */
void drive_submit(struct drive *d, struct operation *o);

/*
 * With timing off there is nothing to wait for: the request is done when these
 * return true. reply gets the pieces of the media while they hold still.
 */
bool drive_write_untimed(struct drive *d, int64_t sector, int64_t count, const void *from);
bool drive_read_untimed(struct drive *d, int64_t sector, int64_t count,
                        void (*reply)(void *context, struct iovec *pieces, int count),
                        void *context);

/* Switches; NULL or what is in the way. They return when they have taken effect. */
const char *drive_timing(struct drive *d, bool on);
const char *drive_write_cache(struct drive *d, enum write_cache mode);
const char *drive_flush_lies(struct drive *d, bool on);
const char *drive_destage(struct drive *d, bool running);
const char *drive_profile(struct drive *d, const struct params *params);
const char *drive_snapshot(struct drive *d);
const char *drive_restore(struct drive *d);
const char *drive_power_off(struct drive *d, const struct cut_plan *plan);
const char *drive_power_on(struct drive *d);
const char *drive_line(struct drive *d, const char *path); /* NULL: leave it */
const char *drive_errors(struct drive *d, const struct errors *errors);
const char *drive_trace(struct drive *d, const char *path);
void drive_reset(struct drive *d);

#endif
