/*
 * Model: a drive of 2005 and the host's elevator before it, as a pure function
 * of requests and a clock.
 *
 * The caller owns time: it submits requests with the time at which they arrive,
 * asks when something will happen next, and advances the model to that time to
 * get what has been completed. Times must not go backwards.
 */
#ifndef MODEL_H
#define MODEL_H

#include "cache.h"
#include "counters.h"
#include "mechanism.h"
#include "readahead.h"
#include "scheduler.h"

#define MODEL_NEVER INT64_MAX

/* Where the bytes are. The model says when they move; see content.c. */
struct medium {
    void *context;
    /* Newest content of a read request -> its data (which may be NULL: none wanted). */
    void (*read)(void *context, const struct request *request);
    /* count sectors of a write request, from its first, -> media. */
    void (*write)(void *context, const struct request *request, int64_t count);
    /* A write request -> cache. */
    void (*cache)(void *context, const struct request *request);
    /* Cache -> the drive's write channel. They have just left cache.dirty. */
    void (*stage)(void *context, int64_t sector, int64_t count);
    /* The first count staged sectors -> media. The channel is empty then. */
    void (*unstage)(void *context, int64_t count);
    /* Cache -> media, without the heads: power cuts that keep some, timing off. */
    void (*keep)(void *context, int64_t sector, int64_t count);
    /* The cache need not remember these any more. */
    void (*drop)(void *context, int64_t sector, int64_t count);
    /* The heads have emptied a part of the cache (for the trace). May be NULL. */
    void (*destaged)(void *context, const struct request *record);
};

enum command_phase {
    PHASE_NONE,
    PHASE_OVERHEAD,  /* controller; until phase_end */
    PHASE_ROOM,      /* a write waits for room in the cache */
    PHASE_INTERFACE, /* between host and cache; until phase_end */
    PHASE_HEADS,     /* waits for the heads to become free */
    PHASE_MEDIA,     /* the heads work for it */
    PHASE_STREAM,    /* the read-ahead under way will have it at phase_end */
    PHASE_FLUSHING,  /* waits for the cache to become empty */
    PHASE_FLUSHED,   /* fixed cost of a flush; until phase_end */
};

struct command {
    enum command_phase phase;
    int64_t phase_end;
    enum request_kind kind;
    int64_t sector;
    int64_t count;
    bool through;             /* a write that goes to the media before it completes */
    uint64_t number;
    int64_t asked;            /* when it began to wait for room or heads */
    struct request_list list; /* in order of sectors */
    struct request record;    /* its times */
};

enum heads_task { HEADS_FREE, HEADS_COMMAND, HEADS_DESTAGE };

struct model {
    struct params params;
    const struct medium *medium;
    struct mechanism mechanism;
    struct cache cache;
    struct readahead readahead;
    const struct scheduler *scheduler;
    struct counters counters;
    int64_t sectors; /* of the disk the host sees */
    int64_t now;

    /* switches */
    bool timing;
    bool write_cache;
    bool flush_lies;
    bool destage_paused;
    bool power;

    struct request_list incoming; /* arrived, behind a flush */
    struct request_list waiting;  /* in the elevator */
    struct request_list constant; /* constant latency: due in order of arrival */
    struct request_list completed;
    int64_t in_flight; /* submitted and not completed */
    int64_t head;      /* the elevator's: sector behind the last command */
    struct command command;

    enum heads_task task;
    struct motion motion;
    int64_t heads_sector; /* sector behind the last access */
    int64_t heads_rest;   /* since when the heads have not worked for the host */
    int64_t busy_since;

    uint64_t sequence;
    uint64_t number;
};

/* False if memory is short. sectors: of the disk, at most what the geometry has. */
bool model_init(struct model *m, const struct params *p, int64_t sectors,
                const struct medium *medium);
void model_free(struct model *m);

/* A request arrives. Whatever was due before has been done before. */
void model_submit(struct model *m, struct request *request, int64_t now);

/* When to call model_advance next; MODEL_NEVER if only a request can change anything. */
int64_t model_next_event(const struct model *m);

/* Whether that event may complete a request; if not, being late for it does no harm. */
bool model_event_completes(const struct model *m);

/* Do everything due by now. */
void model_catch_up(struct model *m, int64_t now);

/* The same; and take the completed requests, in order of completion. */
struct request *model_advance(struct model *m, int64_t now);

int64_t model_dirty_bytes(const struct model *m);

/* Everything only the cache holds goes to the media at once, taking no model time. */
void model_settle(struct model *m);

/* Without timing everything completes as it arrives. Off needs an idle, settled drive. */
void model_set_timing(struct model *m, bool on);

void model_set_write_cache(struct model *m, bool on);
void model_set_flush_lies(struct model *m, bool on);
void model_set_destage(struct model *m, bool running);

/*
 * The power fails now. What the heads are writing ends at the sector below them;
 * the cache is lost but for a random share of its 4 kB pieces; every request
 * fails, and later ones too, until power returns.
 */
void model_power_off(struct model *m, double keep, uint64_t seed);
void model_power_on(struct model *m);

/* The cache is lost, the content of the media is the caller's (restore). */
void model_forget_cache(struct model *m);

void model_reset_counters(struct model *m);

#endif
