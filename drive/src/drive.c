#include "drive.h"

#include "plaintext.h"
#include "process.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The last stretch before a completion is spent awake: waking up takes about this. */
#define SPIN_NS 20000
/* How long a switch waits for the requests in flight: a flush of a full cache may take it. */
#define IDLE_WAIT_NS (60 * NS_PER_SECOND)

/*
 * What is owed to media and cache is moved in parts of this size, and not begun when a completion
 * is due within the time that one may take, fresh pages included.
 */
#define MOVE_BYTES (4 * IMAGE_PAGE)
#define MOVE_NS 50000

#define TIMER_PRIORITY 20

int64_t drive_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

static struct timespec to_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_SECOND, .tv_nsec = ns % NS_PER_SECOND};
}

static void record(struct drive *d, const struct request *r, int64_t delivered)
{
    pthread_mutex_lock(&d->record_lock);
    if (!(r->flags & (FLAG_UNTIMED | FLAG_FAILED)) && r->kind != REQUEST_DESTAGE)
        histogram_add(&d->lateness, delivered - r->done);
    if (d->trace != NULL)
        trace_record(d->trace, r, delivered);
    pthread_mutex_unlock(&d->record_lock);
}

static void destaged(void *context, const struct request *r)
{
    /* sectordata.c gave its own context; the drive is around it. */
    struct sectordata *data = context;
    struct drive *d = (struct drive *)(void *)((char *)data - offsetof(struct drive, data));

    record(d, r, r->done);
}

/* Sectors that a power cut has taken; what cannot be remembered is still counted by the model. */
static void lost(void *context, int64_t sector, int64_t count)
{
    struct drive *d = (struct drive *)(void *)((char *)context - offsetof(struct drive, data));
    struct extent *last;

    if (d->lost_cut != d->model.cut.number) {
        d->lost_cut = d->model.cut.number;
        d->lost_count = 0;
    }
    last = d->lost_count > 0 ? &d->lost[d->lost_count - 1] : NULL;
    if (last != NULL && last->sector + last->count == sector) {
        last->count += count;
        return;
    }
    if (d->lost_count == d->lost_room) {
        size_t room = d->lost_room > 0 ? 2 * d->lost_room : 1024;
        struct extent *more = realloc(d->lost, room * sizeof *more);

        if (more == NULL)
            return;
        d->lost = more;
        d->lost_room = room;
    }
    d->lost[d->lost_count++] = (struct extent){sector, count};
}

bool drive_init(struct drive *d, const struct params *p, int64_t size)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;

    memset(d, 0, sizeof *d);
    d->size = size;
    d->armed = MODEL_NEVER;
    pthread_mutexattr_init(&mutex);
    /* A reader that holds the lock must not be kept from running by others. */
    pthread_mutexattr_setprotocol(&mutex, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&d->lock, &mutex);
    pthread_mutex_init(&d->record_lock, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
    pthread_cond_init(&d->wake, &cond);
    pthread_cond_init(&d->admitting, &cond);
    request_list_init(&d->delivered);
    if (!model_init(&d->model, p, size / SECTOR_BYTES, &d->data.medium) ||
        !sectordata_init(&d->data, size, p, &d->model.cache))
        return false;
    d->data.medium.destaged = destaged;
    d->data.medium.lost = lost;
    model_advance(&d->model, drive_clock());
    return true;
}

/*
 * Under the lock: end the requests whose data have been moved. True if there were some: the lock
 * was left meanwhile.
 */
static bool release(struct drive *d)
{
    struct request_list ended;
    struct request *r;

    request_list_init(&ended);
    while ((r = d->delivered.first) != NULL &&
           ((struct operation *)r)->moves <= d->data.moves.done) {
        request_list_remove(&d->delivered, &d->delivered.first);
        request_list_append(&ended, r);
    }
    if (ended.first == NULL)
        return false;
    pthread_mutex_unlock(&d->lock);
    while ((r = ended.first) != NULL) {
        struct operation *o = (struct operation *)r;

        request_list_remove(&ended, &ended.first);
        o->release(o);
    }
    pthread_mutex_lock(&d->lock);
    return true;
}

/* Under the lock: the timer sleeps past what is now due next, or there is something to move. */
static void rearm(struct drive *d)
{
    bool owed = moves_pending(&d->data.moves) || d->delivered.first != NULL;

    if (model_next_event(&d->model) < d->armed || (owed && d->answering == 0))
        pthread_cond_signal(&d->wake);
}

/*
 * Under the lock: bring the model to the present, but to no moment at which its line had failed.
 * The clock is read before the line, so that what failed by then is seen.
 */
static void catch_up(struct drive *d)
{
    int64_t now = drive_clock();
    int64_t failed = d->line != NULL ? line_failed(d->line) : 0;

    if (failed > d->powered && d->model.power) {
        model_catch_up(&d->model, failed);
        model_follow_cut(&d->model);
    }
    model_catch_up(&d->model, now);
    if (d->line != NULL && d->cuts_told != d->model.cut.number)
        line_fail(d->line, d->model.cut.at, d->powered);
    d->cuts_told = d->model.cut.number;
}

/* Under the lock: what is completed by now, for deliver; nothing is moved before that is done. */
static struct request *completed(struct drive *d)
{
    struct request *list;

    catch_up(d);
    list = model_advance(&d->model, d->model.now);

    d->answering += list != NULL;
    return list;
}

/* Under the lock, which is left meanwhile: answer them. */
static void deliver(struct drive *d, struct request *list)
{
    struct request_list lasting;
    struct request *next;

    request_list_init(&lasting);
    pthread_mutex_unlock(&d->lock);
    for (; list != NULL; list = next) {
        struct operation *o = (struct operation *)list;
        struct request r = *list; /* unless it is lasting, delivering frees it */
        int64_t handed = drive_clock();

        next = r.next;
        o->deliver(o);
        /*
         * To hand the bytes of a read over takes time that is the drive's. An answer without any
         * is an interrupt: what the kernel then does for those who wrote, for all pages of a file
         * perhaps, is its own (and done elsewhere where there are several processors).
         */
        record(d, &r, r.kind == REQUEST_READ ? drive_clock() : handed);
        if (r.lasting)
            request_list_append(&lasting, list);
    }
    pthread_mutex_lock(&d->lock);
    d->answering--;
    while ((next = lasting.first) != NULL) {
        request_list_remove(&lasting, &lasting.first);
        ((struct operation *)next)->moves = d->data.moves.added;
        request_list_append(&d->delivered, next);
    }
}

/* Under the lock: move a part, if nobody is to be answered before it is done. */
static bool move_some(struct drive *d, int64_t next)
{
    if (!moves_pending(&d->data.moves) || d->answering > 0 ||
        (next - drive_clock() < MOVE_NS && model_event_completes(&d->model)))
        return false;
    moves_some(&d->data.moves, MOVE_BYTES);
    return true;
}

static void *keep_time(void *argument)
{
    struct drive *d = argument;

    d->realtime = process_realtime(TIMER_PRIORITY);
    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        struct request *list = completed(d);
        int64_t next;
        int64_t spin;

        if (list != NULL) {
            deliver(d, list);
            continue;
        }
        next = model_next_event(&d->model);
        if (move_some(d, next)) {
            /* Whoever waits for the lock gets it. */
            pthread_mutex_unlock(&d->lock);
            pthread_mutex_lock(&d->lock);
            continue;
        }
        if (release(d))
            continue;
        spin = model_event_completes(&d->model) ? SPIN_NS : 0;
        if (next == MODEL_NEVER) {
            d->armed = MODEL_NEVER;
            pthread_cond_wait(&d->wake, &d->lock);
        } else if (next - drive_clock() > spin) {
            struct timespec until = to_timespec(next - spin);

            d->armed = next;
            pthread_cond_timedwait(&d->wake, &d->lock, &until);
        } else {
            d->armed = next;
            pthread_mutex_unlock(&d->lock);
            while (drive_clock() < next)
                ;
            pthread_mutex_lock(&d->lock);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

bool drive_start(struct drive *d)
{
    return pthread_create(&d->timer, NULL, keep_time, d) == 0;
}

void drive_stop(struct drive *d)
{
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->wake);
    pthread_cond_broadcast(&d->admitting);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->timer, NULL);
    drive_trace(d, NULL);
    if (d->line != NULL)
        line_leave(d->line);
    d->line = NULL;
}

/* Take the lock with the model brought up to now: a switch changes only what follows. */
static void lock_at_present(struct drive *d)
{
    pthread_mutex_lock(&d->lock);
    catch_up(d);
}

/* Leave the lock, and deliver what has been completed meanwhile. */
static void unlock_and_deliver(struct drive *d)
{
    struct request *list = completed(d);

    rearm(d);
    if (list != NULL) {
        deliver(d, list);
        rearm(d);
    }
    pthread_mutex_unlock(&d->lock);
}

void drive_catch_up(struct drive *d)
{
    lock_at_present(d);
    unlock_and_deliver(d);
}

void drive_submit(struct drive *d, struct operation *o)
{
    pthread_mutex_lock(&d->lock);
    while (d->held && !d->stop)
        pthread_cond_wait(&d->admitting, &d->lock);
    catch_up(d);
    model_submit(&d->model, &o->request, d->model.now);
    unlock_and_deliver(d);
}

/* Under the lock, with timing off and power on: what is submitted is completed. */
static bool submit_untimed(struct drive *d, struct request *r)
{
    catch_up(d);
    if (d->model.timing || !d->model.power || d->model.errors.kinds != 0)
        return false;
    model_submit(&d->model, r, d->model.now);
    model_advance(&d->model, r->arrival);
    record(d, r, r->done);
    return true;
}

bool drive_write_untimed(struct drive *d, int64_t sector, int64_t count, const void *from)
{
    struct request r = {
        .kind = REQUEST_WRITE, .sector = sector, .count = count, .data = (void *)(uintptr_t)from};
    bool done;

    pthread_mutex_lock(&d->lock);
    done = submit_untimed(d, &r);
    pthread_mutex_unlock(&d->lock);
    return done;
}

bool drive_read_untimed(struct drive *d, int64_t sector, int64_t count,
                        void (*reply)(void *context, struct iovec *pieces, int count),
                        void *context)
{
    struct request r = {.kind = REQUEST_READ, .sector = sector, .count = count};
    struct iovec piece[512]; /* 1 MiB in pages of either map, at worst */
    int pieces = -1;
    bool done;

    pthread_mutex_lock(&d->lock);
    if (!d->model.timing)
        pieces = sectordata_pieces(&d->data, sector, count, piece,
                                   (int)(sizeof piece / sizeof piece[0]));
    done = pieces >= 0 && submit_untimed(d, &r);
    if (done)
        reply(context, piece, pieces);
    pthread_mutex_unlock(&d->lock);
    return done;
}

/* --- switches -------------------------------------------------------------------------- */

struct flush {
    struct operation operation;
    sem_t done;
};

static void flush_done(struct operation *o)
{
    sem_post(&((struct flush *)o)->done);
}

/* Wait, in model time, until everything is on the media. */
static void flush(struct drive *d)
{
    struct flush f = {
        .operation = {.request = {.kind = REQUEST_FLUSH, .honest = true}, .deliver = flush_done}};

    sem_init(&f.done, 0, 0);
    drive_submit(d, &f.operation);
    while (sem_wait(&f.done) != 0 && errno == EINTR)
        ;
    sem_destroy(&f.done);
}

static const char *const in_flight = "requests are in flight";

const char *drive_timing(struct drive *d, bool on)
{
    int64_t give_up = drive_clock() + IDLE_WAIT_NS;
    struct timespec moment = {.tv_nsec = 1000000};
    bool idle;

    /* New requests wait meanwhile: a busy drive may have no moment without any. */
    for (;;) {
        lock_at_present(d);
        idle = d->model.in_flight == 0;
        d->held = !idle && drive_clock() <= give_up;
        if (!d->held)
            break;
        unlock_and_deliver(d);
        nanosleep(&moment, NULL);
    }
    if (idle) {
        model_settle(&d->model);
        model_set_timing(&d->model, on);
    }
    pthread_cond_broadcast(&d->admitting);
    unlock_and_deliver(d);
    return idle ? NULL : in_flight;
}

const char *drive_write_cache(struct drive *d, enum write_cache mode)
{
    const char *problem = NULL;

    lock_at_present(d);
    if (mode != CACHE_OFF && d->model.params.cache_bytes == 0)
        problem = "this drive has no cache (cache_bytes=0)";
    else
        model_set_write_cache(&d->model, mode);
    unlock_and_deliver(d);
    /* Writes go to the media from now on; those before are on it when this returns. */
    if (mode == CACHE_OFF)
        flush(d);
    return problem;
}

const char *drive_flush_lies(struct drive *d, bool on)
{
    lock_at_present(d);
    model_set_flush_lies(&d->model, on);
    unlock_and_deliver(d);
    return NULL;
}

const char *drive_destage(struct drive *d, bool running)
{
    lock_at_present(d);
    model_set_destage(&d->model, running);
    unlock_and_deliver(d);
    return NULL;
}

const char *drive_profile(struct drive *d, const struct params *params)
{
    const char *problem = NULL;

    if (d->size / SECTOR_BYTES > model_capacity(params))
        return "such a drive is smaller than this one";
    lock_at_present(d);
    if (d->model.in_flight > 0) {
        problem = in_flight;
    } else {
        model_settle(&d->model);
        if (sectordata_adopt(&d->data, params))
            model_set_params(&d->model, params);
        else
            problem = "not enough memory";
    }
    unlock_and_deliver(d);
    return problem;
}

const char *drive_snapshot(struct drive *d)
{
    const char *problem = NULL;

    lock_at_present(d);
    if (d->model.in_flight > 0) {
        problem = in_flight;
    } else {
        model_settle(&d->model);
        sectordata_snapshot(&d->data);
    }
    unlock_and_deliver(d);
    return problem;
}

const char *drive_restore(struct drive *d)
{
    const char *problem = NULL;

    lock_at_present(d);
    if (d->model.in_flight > 0) {
        problem = in_flight;
    } else if (!d->data.image.snapshot) {
        problem = "there is no snapshot";
    } else {
        model_forget_cache(&d->model);
        sectordata_restore(&d->data);
    }
    unlock_and_deliver(d);
    return problem;
}

const char *drive_power_off(struct drive *d, const struct cut_plan *plan)
{
    lock_at_present(d);
    if (!plan->follow && plan->writes == 0 && plan->flushes == 0 && plan->within_ns == 0)
        model_power_off(&d->model, &plan->keep);
    else if (d->model.power)
        model_plan_cut(&d->model, plan);
    unlock_and_deliver(d);
    return NULL;
}

const char *drive_power_on(struct drive *d)
{
    lock_at_present(d);
    model_power_on(&d->model);
    d->powered = d->model.now;
    unlock_and_deliver(d);
    return NULL;
}

const char *drive_line(struct drive *d, const char *path)
{
    struct line *joined = NULL;

    if (path != NULL) {
        if (strlen(path) >= sizeof d->line_path || !is_plain_text(path))
            return "the path is too long, or has quotes or control characters in it";
        joined = line_join(path);
        if (joined == NULL)
            return strerror(errno);
    }
    lock_at_present(d);
    if (d->line != NULL)
        line_leave(d->line);
    d->line = joined;
    strcpy(d->line_path, path != NULL ? path : "");
    /* What failed before is none of its business. */
    d->powered = d->model.now;
    unlock_and_deliver(d);
    return NULL;
}

const char *drive_errors(struct drive *d, const struct errors *errors)
{
    lock_at_present(d);
    model_set_errors(&d->model, errors);
    unlock_and_deliver(d);
    return NULL;
}

void drive_reset(struct drive *d)
{
    lock_at_present(d);
    pthread_mutex_lock(&d->record_lock);
    model_reset_counters(&d->model);
    memset(&d->lateness, 0, sizeof d->lateness);
    pthread_mutex_unlock(&d->record_lock);
    unlock_and_deliver(d);
}

const char *drive_trace(struct drive *d, const char *path)
{
    struct trace *opened = NULL;
    struct trace *old;
    uint64_t lost = 0;

    if (path != NULL) {
        if (strlen(path) >= sizeof d->trace_path || !is_plain_text(path))
            return "the path is too long, or has quotes or control characters in it";
        opened = trace_open(path, params_revolution_ns(&d->model.params));
        if (opened == NULL)
            return strerror(errno);
    }
    pthread_mutex_lock(&d->record_lock);
    old = d->trace;
    d->trace = opened;
    strcpy(d->trace_path, path != NULL ? path : "");
    pthread_mutex_unlock(&d->record_lock);
    if (old != NULL)
        lost = trace_close(old);
    pthread_mutex_lock(&d->record_lock);
    if (old != NULL)
        d->trace_lost = lost;
    pthread_mutex_unlock(&d->record_lock);
    return NULL;
}
