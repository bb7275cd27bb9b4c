/*
 * Model: a drive and the host's elevator before it, as a pure function of requests
 * and a clock.
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
#include "writecache.h"

#define MODEL_NEVER INT64_MAX

/* Where the bytes are. The model says when they move; see sectordata.c. */
struct medium {
    void *context;
    /* Newest content of a read request -> its data (which may be NULL: none wanted). */
    void (*read)(void *context, const struct request *request);
    /* These sectors of a write request -> media. */
    void (*write)(void *context, const struct request *request, int64_t sector, int64_t count);
    /* A write request -> cache. */
    void (*cache)(void *context, const struct request *request);
    /* Cache -> the unit's write channel. They have just left cache.dirty. */
    void (*stage)(void *context, int64_t unit, int64_t sector, int64_t count);
    /* The first count staged sectors -> media. The channel is empty then. */
    void (*unstage)(void *context, int64_t unit, int64_t count);
    /* Cache -> media, without the heads: power cuts that keep some, timing off. */
    void (*keep)(void *context, int64_t sector, int64_t count);
    /* The cache need not remember these any more. */
    void (*drop)(void *context, int64_t sector, int64_t count);
    /* Staged sectors from passed on -> cache again, but where it has newer ones. */
    void (*restage)(void *context, int64_t unit, int64_t passed);
    /* A power cut has taken these from the cache, acknowledged as they were. May be NULL. */
    void (*lost)(void *context, int64_t sector, int64_t count);
    /* The heads have emptied a part of the cache (for the trace). May be NULL. */
    void (*destaged)(void *context, const struct request *record);
};

enum command_phase {
    PHASE_NONE,
    PHASE_OVERHEAD,  /* controller; until phase_end */
    PHASE_ROOM,      /* a write waits for room in the cache */
    PHASE_INTERFACE, /* between host and cache; until phase_end */
    PHASE_MEDIA,     /* the heads work for it, or will */
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
    bool through; /* a write that goes to the media before it completes */
    uint64_t number;
    int64_t asked;            /* when it began to wait for room or heads */
    uint32_t wanted;          /* a bit for each unit that has not begun its part */
    int64_t parts;            /* units that have not ended theirs */
    struct request_list list; /* in order of sectors */
    struct request record;    /* its times */
};

/* What of the volatile cache reaches the media all the same. */
struct keeping {
    double share;  /* a random one, in parts of 4 kB */
    int64_t first; /* besides these, so many pieces (cache.h), in the order they were written */
    uint64_t seed; /* of the share, and of a planned cut's moment */
};

/* A power cut to come. */
struct cut_plan {
    bool follow;       /* only with the line (line.h) */
    int64_t writes;    /* when so many more have been completed; 0: from now on */
    int64_t flushes;   /* the same; at most one of them is not 0 */
    int64_t within_ns; /* at a random moment of such a window */
    struct keeping keep;
};

/* The last power cut, and what it did. */
struct cut {
    int64_t number; /* cuts so far */
    int64_t at;
    int64_t failed;         /* requests that it ended */
    int64_t lost_sectors;   /* of the cache */
    int64_t kept_sectors;   /* of the cache, on the media now or saved by the battery */
    int64_t pieces;         /* that a volatile cache held */
    enum request_kind torn; /* write or destage, if count > 0: what was under the head */
    int64_t torn_sector;
    int64_t torn_count;
    int64_t torn_passed; /* sectors of it that reached the media */
};

/* Requests that shall fail with EIO. */
struct errors {
    unsigned kinds; /* 1 << request_kind each; 0: none */
    int64_t first;  /* reads and writes that touch the sectors [first, end) */
    int64_t end;
    int64_t times; /* how many more; INT64_MAX: all */
    int64_t until; /* MODEL_NEVER: for ever */
};

enum heads_task { HEADS_FREE, HEADS_COMMAND, HEADS_STREAM, HEADS_DESTAGE };

/* A spindle or a flash channel. Its motion is in its own sectors (stripes.h). */
struct unit {
    struct mechanism mechanism;
    struct readahead readahead;
    enum heads_task task;
    struct command *command; /* what the heads work for */
    struct motion motion;
    int64_t heads_sector; /* the host's, behind the last access */
    int64_t heads_rest;   /* since when the heads have not worked for the host */
    bool destaged;        /* by its last access */
};

struct model {
    struct params params;
    const struct medium *medium;
    struct stripes stripes;
    struct unit unit[UNITS_MAX];
    struct cache cache;
    struct scheduler scheduler; /* the host's elevator */
    struct counters counters;
    int64_t sectors; /* of the disk the host sees */
    int64_t now;

    /* switches */
    bool timing;
    enum write_cache write_cache;
    bool flush_lies;
    bool destage_paused;
    bool power;
    struct errors errors;

    bool cut_planned;
    struct cut_plan cut_plan;
    int64_t cut_due; /* MODEL_NEVER: not known yet */
    struct cut cut;

    struct request_list incoming; /* arrived, behind a flush */
    struct request_list waiting;  /* in the elevator */
    struct request_list constant; /* constant latency: due in order of arrival */
    struct request_list completed;
    int64_t in_flight; /* submitted and not completed */
    bool fresh;        /* something arrived that nobody has looked at */
    struct command command[COMMANDS_MAX];
    int64_t active;   /* commands in the drive */
    int64_t flushes;  /* among them */
    int64_t reserved; /* sectors on their way into the cache */
    int64_t bus_free; /* when the interface has done what it was given */
    int64_t busy_since;

    uint64_t sequence;
    uint64_t number;
};

/* Sectors of a drive with these parameters. */
int64_t model_capacity(const struct params *p);

/* False if memory is short. sectors: of the disk, at most the capacity. */
bool model_init(struct model *m, const struct params *p, int64_t sectors,
                const struct medium *medium);
void model_free(struct model *m);

/* Become another drive, with the same content: needs an idle, settled one. */
void model_set_params(struct model *m, const struct params *p);

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

/*
 * With a battery the cache counts as media: flushes and FUA do not wait, a power
 * cut loses nothing. When it is full, writes go at the speed of the media.
 */
void model_set_write_cache(struct model *m, enum write_cache mode);
void model_set_flush_lies(struct model *m, bool on);
void model_set_destage(struct model *m, bool running);

/*
 * The power fails now. What the heads are writing ends at the sector below them;
 * the cache is lost but for what is kept of it; every request fails, and later
 * ones too, until power returns.
 */
void model_power_off(struct model *m, const struct keeping *keep);

/* The same later; it replaces an earlier plan. */
void model_plan_cut(struct model *m, const struct cut_plan *plan);

/* The same now, because others that share the power have lost it; as planned, if it was. */
void model_follow_cut(struct model *m);

/* Also gives up a planned cut. */
void model_power_on(struct model *m);

/* From now on; errors.until counts from now, too. */
void model_set_errors(struct model *m, const struct errors *errors);

/* The cache is lost, the content of the media is the caller's (restore). */
void model_forget_cache(struct model *m);

void model_reset_counters(struct model *m);

#endif
