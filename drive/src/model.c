#include "model.h"

#include <errno.h>
#include <string.h>

#define KEEP_SECTORS 8 /* a power cut keeps or loses pieces of 4 kB */

bool model_init(struct model *m, const struct params *p, int64_t sectors,
                const struct medium *medium)
{
    memset(m, 0, sizeof *m);
    m->params = *p;
    m->medium = medium;
    m->sectors = sectors;
    mechanism_init(&m->mechanism, p);
    readahead_init(&m->readahead, p, &m->mechanism, sectors);
    m->scheduler = scheduler_named((enum scheduler_kind)p->scheduler);
    request_list_init(&m->incoming);
    request_list_init(&m->waiting);
    request_list_init(&m->constant);
    request_list_init(&m->completed);
    m->timing = true;
    m->power = true;
    m->cut_due = MODEL_NEVER;
    return cache_init(&m->cache, p, sectors);
}

void model_free(struct model *m)
{
    cache_free(&m->cache);
}

/* splitmix64: the same seed gives the same moments and pieces on every machine. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* --- completing ------------------------------------------------------------------------ */

static bool busy(const struct model *m)
{
    return m->command.phase != PHASE_NONE || m->task != HEADS_FREE;
}

/* To be called around whatever may begin or end work. */
static void account_busy(struct model *m, bool was_busy)
{
    if (!was_busy && busy(m))
        m->busy_since = m->now;
    else if (was_busy && !busy(m))
        m->counters.busy_ns += (uint64_t)(m->now - m->busy_since);
}

/* The writes that a planned cut waits for are done: now, or within its window. */
static void fix_cut(struct model *m)
{
    uint64_t seed = m->cut_plan.seed;

    m->cut_due = m->now;
    if (m->cut_plan.within_ns > 0)
        m->cut_due += (int64_t)(next_random(&seed) % (uint64_t)m->cut_plan.within_ns);
}

static void complete(struct model *m, struct request *r, int error)
{
    struct counters *c = &m->counters;

    r->error = error;
    r->done = m->now;
    m->in_flight--;
    if (error != 0) {
        r->flags |= FLAG_FAILED;
        c->requests_failed++;
    } else if (r->kind == REQUEST_READ) {
        m->medium->read(m->medium->context, r);
        c->reads++;
        c->sectors_read += (uint64_t)r->count;
        c->cache_read_hits += (r->flags & FLAG_CACHED) != 0;
        c->readahead_hits += (r->flags & FLAG_READ_AHEAD) != 0;
    } else if (r->kind == REQUEST_WRITE) {
        c->writes++;
        c->fua_writes += r->fua;
        c->sectors_written += (uint64_t)r->count;
        c->cache_write_hits += (r->flags & FLAG_CACHED) != 0;
        if (m->cut_planned && m->cut_plan.writes > 0 && --m->cut_plan.writes == 0)
            fix_cut(m);
    } else {
        c->flushes++;
    }
    request_list_append(&m->completed, r);
}

static void end_command(struct model *m, unsigned flags)
{
    struct command *command = &m->command;
    struct request *record = &command->record;
    struct request *r;
    bool leader = true;

    m->counters.command_ns += (uint64_t)(m->now - record->start);
    m->counters.overhead_ns += (uint64_t)record->overhead_ns;
    m->counters.interface_ns += (uint64_t)record->interface_ns;
    if (command->kind == REQUEST_FLUSH)
        m->counters.flush_ns += (uint64_t)(m->now - record->start);
    while ((r = command->list.first) != NULL) {
        request_list_remove(&command->list, &command->list.first);
        r->start = record->start;
        r->command = command->number;
        r->flags |= flags;
        if (leader) {
            r->overhead_ns = record->overhead_ns;
            r->interface_ns = record->interface_ns;
            r->seek_ns = record->seek_ns;
            r->rotate_ns = record->rotate_ns;
            r->transfer_ns = record->transfer_ns;
        } else {
            r->flags |= FLAG_MERGED;
            m->counters.merged_requests++;
        }
        leader = false;
        complete(m, r, 0);
    }
    command->phase = PHASE_NONE;
}

/* --- heads ----------------------------------------------------------------------------- */

static void start_heads(struct model *m, enum heads_task task, int64_t sector, int64_t count,
                        bool write)
{
    int64_t reached = readahead_stop(&m->readahead, m->now);

    if (reached > 0)
        mechanism_move(&m->mechanism, reached - 1);
    m->motion = mechanism_plan(&m->mechanism, sector, count, write, m->now);
    m->task = task;
}

static void account_heads(struct model *m, struct request *record)
{
    const struct motion *motion = &m->motion;
    struct counters *c = &m->counters;

    record->seek_ns = motion->seek_ns;
    record->rotate_ns = motion->rotate_ns;
    record->transfer_ns = motion->transfer_ns;
    c->seek_ns += (uint64_t)motion->seek_ns;
    c->rotate_ns += (uint64_t)motion->rotate_ns;
    c->transfer_ns += (uint64_t)motion->transfer_ns;
    c->media_ns += (uint64_t)(motion->end - motion->start);
    c->revolutions_waited =
        c->rotate_ns / (uint64_t)m->mechanism.geometry.revolution_ns;
}

static void start_destage(struct model *m)
{
    struct cache *cache = &m->cache;
    int64_t limit = m->params.merge_bytes / SECTOR_BYTES;

    /* Nearest above the heads, so that a round over the disk is one sweep. */
    cache_stage(cache, m->heads_sector, limit);
    m->medium->stage(m->medium->context, cache->staged_sector, cache->staged_count);
    start_heads(m, HEADS_DESTAGE, cache->staged_sector, cache->staged_count, true);
}

static void end_destage(struct model *m)
{
    struct request record = {
        .kind = REQUEST_DESTAGE,
        .sector = m->motion.sector,
        .count = m->motion.count,
        .arrival = m->motion.start,
        .start = m->motion.start,
        .done = m->motion.end,
    };

    m->medium->unstage(m->medium->context, m->motion.count);
    cache_unstage(&m->cache);
    m->counters.destages++;
    m->counters.sectors_destaged += (uint64_t)m->motion.count;
    account_heads(m, &record);
    record.sequence = ++m->sequence;
    if (m->medium->destaged != NULL)
        m->medium->destaged(m->medium->context, &record);
}

/* Sectors that went to the media directly: older versions in the cache are void. */
static void supersede(struct model *m, int64_t sector, int64_t count)
{
    if (sectors_remove(&m->cache.dirty, sector, count) > 0)
        m->medium->drop(m->medium->context, sector, count);
}

static void end_heads(struct model *m)
{
    struct command *command = &m->command;
    const struct motion *motion = &m->motion;
    enum heads_task task = m->task;

    mechanism_move(&m->mechanism, motion->sector + motion->count - 1);
    m->heads_sector = motion->sector + motion->count;
    m->task = HEADS_FREE;
    if (task == HEADS_DESTAGE) {
        end_destage(m);
        return;
    }
    account_heads(m, &command->record);
    m->heads_rest = m->now;
    if (command->kind == REQUEST_WRITE) {
        m->counters.media_writes++;
        for (struct request *r = command->list.first; r != NULL; r = r->next)
            m->medium->write(m->medium->context, r, r->count);
        supersede(m, command->sector, command->count);
    } else {
        m->counters.media_reads++;
        readahead_start(&m->readahead, command->sector, command->count, m->now);
    }
    end_command(m, 0);
}

/* --- commands -------------------------------------------------------------------------- */

static int64_t interface_time(const struct model *m, int64_t count)
{
    return count * SECTOR_BYTES * NS_PER_SECOND / m->params.interface_bytes_per_s;
}

static void enter(struct model *m, enum command_phase phase, int64_t duration)
{
    m->command.phase = phase;
    m->command.phase_end = m->now + duration;
}

static void enter_interface(struct model *m)
{
    m->command.record.interface_ns = interface_time(m, m->command.count);
    enter(m, PHASE_INTERFACE, m->command.record.interface_ns);
}

/* What arrived before a flush goes into the elevator; the flush and the rest wait. */
static void admit(struct model *m)
{
    while (m->incoming.first != NULL && m->incoming.first->kind != REQUEST_FLUSH) {
        struct request *r = m->incoming.first;

        request_list_remove(&m->incoming, &m->incoming.first);
        request_list_append(&m->waiting, r);
    }
}

static bool dispatchable(const struct model *m)
{
    return m->command.phase == PHASE_NONE &&
           (m->waiting.first != NULL || m->incoming.first != NULL);
}

/* The elevator gives the drive its next command; there is never more than one. */
static void dispatch(struct model *m)
{
    struct command *command = &m->command;
    const struct request *r;

    memset(&command->record, 0, sizeof command->record);
    if (m->waiting.first != NULL) {
        scheduler_take(m->scheduler, &m->waiting, m->head, m->params.merge_bytes / SECTOR_BYTES,
                       &command->list);
    } else {
        struct request *flush = m->incoming.first;

        request_list_remove(&m->incoming, &m->incoming.first);
        request_list_init(&command->list);
        request_list_append(&command->list, flush);
    }
    r = command->list.first;
    command->kind = r->kind;
    command->number = ++m->number;
    command->sector = r->sector;
    command->count = 0;
    for (const struct request *each = r; each != NULL; each = each->next)
        command->count += each->count;
    if (r->kind != REQUEST_FLUSH)
        m->head = command->sector + command->count;
    /* A command longer than the whole cache cannot go through it. */
    command->through = r->kind == REQUEST_WRITE &&
                       (m->write_cache == CACHE_OFF ||
                        (r->fua && m->write_cache != CACHE_BATTERY) ||
                        command->count > m->cache.capacity);
    command->record.start = m->now;
    command->record.overhead_ns = m->params.command_overhead_ns;
    m->counters.commands++;
    enter(m, PHASE_OVERHEAD, m->params.command_overhead_ns);
}

static void after_overhead(struct model *m)
{
    struct command *command = &m->command;
    const struct request *flush;
    int64_t ready;

    command->asked = m->now;
    switch (command->kind) {
    case REQUEST_WRITE:
        readahead_forget(&m->readahead, command->sector, command->count, m->now);
        if (command->through)
            enter(m, PHASE_HEADS, 0);
        else
            enter(m, PHASE_ROOM, 0);
        break;
    case REQUEST_READ:
        if (cache_holds(&m->cache, command->sector, command->count)) {
            for (struct request *r = command->list.first; r != NULL; r = r->next)
                r->flags |= FLAG_CACHED;
            enter_interface(m);
            break;
        }
        switch (readahead_ask(&m->readahead, command->sector, command->count, m->now, &ready)) {
        case READAHEAD_MISS:
            enter(m, PHASE_HEADS, 0);
            break;
        case READAHEAD_HIT:
            for (struct request *r = command->list.first; r != NULL; r = r->next)
                r->flags |= FLAG_READ_AHEAD;
            enter_interface(m);
            break;
        case READAHEAD_COMING:
            for (struct request *r = command->list.first; r != NULL; r = r->next)
                r->flags |= FLAG_READ_AHEAD;
            enter(m, PHASE_STREAM, ready - m->now);
            break;
        }
        break;
    default:
        flush = command->list.first;
        if (m->flush_lies && !flush->honest)
            end_command(m, FLAG_LIED);
        else if (m->write_cache == CACHE_BATTERY && !flush->honest)
            end_command(m, 0);
        else
            enter(m, PHASE_FLUSHING, 0);
        break;
    }
}

static void after_stream(struct model *m)
{
    struct command *command = &m->command;
    int64_t waited = m->now - command->asked;

    /* The sectors passed meanwhile; the interface carried them as they came. */
    command->record.transfer_ns = waited;
    m->counters.transfer_ns += (uint64_t)waited;
    m->counters.media_ns += (uint64_t)waited;
    m->heads_rest = m->now;
    end_command(m, 0);
}

static void after_interface(struct model *m)
{
    struct command *command = &m->command;

    if (command->kind == REQUEST_READ) {
        end_command(m, 0);
        return;
    }
    for (struct request *r = command->list.first; r != NULL; r = r->next) {
        m->medium->cache(m->medium->context, r);
        sectors_add(&m->cache.dirty, r->sector, r->count);
    }
    if ((uint64_t)model_dirty_bytes(m) > m->counters.dirty_bytes_max)
        m->counters.dirty_bytes_max = (uint64_t)model_dirty_bytes(m);
    end_command(m, FLAG_CACHED);
}

static void end_phase(struct model *m)
{
    switch (m->command.phase) {
    case PHASE_OVERHEAD:
        after_overhead(m);
        break;
    case PHASE_INTERFACE:
        after_interface(m);
        break;
    case PHASE_STREAM:
        after_stream(m);
        break;
    case PHASE_FLUSHED:
        m->command.record.overhead_ns += m->params.flush_overhead_ns;
        end_command(m, 0);
        break;
    default:
        break;
    }
}

/* --- the machine ----------------------------------------------------------------------- */

static bool phase_is_timed(enum command_phase phase)
{
    return phase == PHASE_OVERHEAD || phase == PHASE_INTERFACE || phase == PHASE_STREAM ||
           phase == PHASE_FLUSHED;
}

/* When destaging starts if nothing else happens. */
static int64_t destage_due(const struct model *m)
{
    const struct command *command = &m->command;

    if (m->cache.dirty.members == 0 || m->task != HEADS_FREE || !m->power)
        return MODEL_NEVER;
    if (command->phase == PHASE_ROOM || command->phase == PHASE_FLUSHING)
        return m->now;
    if (m->destage_paused)
        return MODEL_NEVER;
    /* A command that is going to need the heads gets them. */
    if (command->phase != PHASE_NONE && (command->kind == REQUEST_READ || command->through))
        return MODEL_NEVER;
    if (m->write_cache == CACHE_OFF) /* just switched off: nothing may linger */
        return m->now;
    if (m->heads_rest + m->params.destage_idle_ns > m->now)
        return m->heads_rest + m->params.destage_idle_ns;
    return m->now;
}

/* Everything that can begin at this very moment. */
static void begin_what_can(struct model *m)
{
    struct command *command = &m->command;
    bool again = true;

    while (again) {
        again = false;
        admit(m);
        if (dispatchable(m)) {
            dispatch(m);
            again = true;
        }
        if (command->phase == PHASE_ROOM &&
            cache_has_room(&m->cache, command->sector, command->count)) {
            m->counters.room_ns += (uint64_t)(m->now - command->asked);
            enter_interface(m);
            again = true;
        }
        if (command->phase == PHASE_HEADS && m->task == HEADS_FREE) {
            enter(m, PHASE_MEDIA, 0);
            start_heads(m, HEADS_COMMAND, command->sector, command->count,
                        command->kind == REQUEST_WRITE);
        }
        if (command->phase == PHASE_FLUSHING && cache_used(&m->cache) == 0) {
            enter(m, PHASE_FLUSHED, m->params.flush_overhead_ns);
            again = true;
        }
        if (destage_due(m) <= m->now)
            start_destage(m);
        if (phase_is_timed(command->phase) && command->phase_end <= m->now) {
            end_phase(m);
            again = true;
        }
    }
}

static int64_t next_internal(const struct model *m)
{
    int64_t next = destage_due(m);

    if (phase_is_timed(m->command.phase) && m->command.phase_end < next)
        next = m->command.phase_end;
    if (m->task != HEADS_FREE && m->motion.end < next)
        next = m->motion.end;
    if (m->constant.first != NULL && m->constant.first->done < next)
        next = m->constant.first->done;
    if (dispatchable(m))
        next = m->now;
    if (m->cut_due < next)
        next = m->cut_due;
    return next;
}

static void end_constant(struct model *m)
{
    struct request *r = m->constant.first;

    request_list_remove(&m->constant, &m->constant.first);
    if (r->kind == REQUEST_WRITE)
        m->medium->write(m->medium->context, r, r->count);
    complete(m, r, 0);
}

static void run(struct model *m, int64_t now)
{
    while (m->power) {
        int64_t next = next_internal(m);
        bool was_busy = busy(m);

        if (next > now)
            break;
        if (next > m->now)
            m->now = next;
        if (m->constant.first != NULL && m->constant.first->done <= m->now)
            end_constant(m);
        if (m->task != HEADS_FREE && m->motion.end <= m->now)
            end_heads(m);
        if (phase_is_timed(m->command.phase) && m->command.phase_end <= m->now)
            end_phase(m);
        if (m->cut_due <= m->now) {
            account_busy(m, was_busy);
            model_power_off(m, m->cut_plan.keep, m->cut_plan.seed);
            break;
        }
        begin_what_can(m);
        account_busy(m, was_busy);
    }
    if (now > m->now)
        m->now = now;
}

/* Whether this request is one of those that shall fail. */
static bool fails(struct model *m, const struct request *r)
{
    struct errors *e = &m->errors;

    if (!(e->kinds >> r->kind & 1) || r->honest)
        return false;
    if (m->now >= e->until) {
        e->kinds = 0;
        return false;
    }
    if (r->kind != REQUEST_FLUSH && (r->sector >= e->end || r->sector + r->count <= e->first))
        return false;
    if (e->times != INT64_MAX && --e->times == 0)
        e->kinds = 0;
    m->counters.errors_injected++;
    return true;
}

static void submit_untimed(struct model *m, struct request *r)
{
    r->start = m->now;
    r->flags |= FLAG_UNTIMED;
    if (r->kind == REQUEST_WRITE)
        m->medium->write(m->medium->context, r, r->count);
    complete(m, r, 0);
}

void model_submit(struct model *m, struct request *r, int64_t now)
{
    run(m, now);
    r->arrival = m->now;
    r->sequence = ++m->sequence;
    r->command = 0;
    r->start = m->now;
    r->done = m->now;
    r->overhead_ns = r->interface_ns = r->seek_ns = r->rotate_ns = r->transfer_ns = 0;
    r->flags = r->fua ? FLAG_FUA : 0;
    r->error = 0;
    m->in_flight++;
    if (!m->power || fails(m, r)) {
        complete(m, r, EIO);
    } else if (!m->timing) {
        submit_untimed(m, r);
    } else if (m->params.constant_latency_ns > 0) {
        r->done = m->now + m->params.constant_latency_ns;
        request_list_append(&m->constant, r);
    } else {
        request_list_append(&m->incoming, r);
    }
}

bool model_event_completes(const struct model *m)
{
    int64_t next = model_next_event(m);
    enum command_phase phase = m->command.phase;

    if (phase_is_timed(phase) && phase != PHASE_OVERHEAD && m->command.phase_end <= next)
        return true;
    if (m->task == HEADS_COMMAND && m->motion.end <= next)
        return true;
    return m->constant.first != NULL && m->constant.first->done <= next;
}

void model_catch_up(struct model *m, int64_t now)
{
    run(m, now);
}

int64_t model_next_event(const struct model *m)
{
    return m->power ? next_internal(m) : MODEL_NEVER;
}

struct request *model_advance(struct model *m, int64_t now)
{
    struct request *list;

    run(m, now);
    list = m->completed.first;
    request_list_init(&m->completed);
    return list;
}

/* --- switches -------------------------------------------------------------------------- */

int64_t model_dirty_bytes(const struct model *m)
{
    return cache_used(&m->cache) * SECTOR_BYTES;
}

void model_settle(struct model *m)
{
    struct sectors *dirty = &m->cache.dirty;

    if (m->task == HEADS_DESTAGE) {
        bool was_busy = busy(m);

        m->medium->unstage(m->medium->context, m->motion.count);
        cache_unstage(&m->cache);
        m->task = HEADS_FREE;
        account_busy(m, was_busy);
    }
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t end = sectors_next_absent(dirty, s, dirty->size);

        m->medium->keep(m->medium->context, s, end - s);
        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
}

void model_set_timing(struct model *m, bool on)
{
    m->timing = on;
    /* Untimed writes pass the read-ahead by. */
    readahead_clear(&m->readahead);
}

void model_set_write_cache(struct model *m, enum write_cache mode)
{
    m->write_cache = m->cache.capacity > 0 ? mode : CACHE_OFF;
}

void model_set_flush_lies(struct model *m, bool on)
{
    m->flush_lies = on;
}

void model_set_destage(struct model *m, bool running)
{
    m->destage_paused = !running;
}

void model_set_errors(struct model *m, const struct errors *errors)
{
    m->errors = *errors;
    if (errors->until != MODEL_NEVER)
        m->errors.until += m->now;
}

void model_reset_counters(struct model *m)
{
    memset(&m->counters, 0, sizeof m->counters);
    m->counters.dirty_bytes_max = (uint64_t)model_dirty_bytes(m);
    if (busy(m))
        m->busy_since = m->now;
}

/* --- power ----------------------------------------------------------------------------- */

static bool chance(uint64_t *state, double share)
{
    return (double)(next_random(state) >> 11) * 0x1p-53 < share;
}

static void lose(struct model *m, int64_t sector, int64_t count)
{
    m->cut.lost_sectors += count;
    if (m->medium->lost != NULL)
        m->medium->lost(m->medium->context, sector, count);
}

/* Keep pieces of what only the cache holds, lose the others. */
static void lose_cache(struct model *m, double keep, uint64_t seed)
{
    struct sectors *dirty = &m->cache.dirty;

    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t limit = (s / KEEP_SECTORS + 1) * KEEP_SECTORS;
        int64_t end = sectors_next_absent(dirty, s, limit < dirty->size ? limit : dirty->size);

        if (chance(&seed, keep)) {
            m->medium->keep(m->medium->context, s, end - s);
            m->cut.kept_sectors += end - s;
        } else {
            lose(m, s, end - s);
        }
        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
}

/* What only the cache holds of a destaging write that was cut; newer versions are dirty. */
static void lose_staged(struct model *m, int64_t passed)
{
    int64_t end = m->motion.sector + m->motion.count;

    for (int64_t s = m->motion.sector + passed; s < end;) {
        int64_t dirty = sectors_next(&m->cache.dirty, s);

        dirty = dirty < end ? dirty : end;
        if (dirty > s)
            lose(m, s, dirty - s);
        s = sectors_next_absent(&m->cache.dirty, dirty, end);
    }
}

/* The sectors that have passed are on the media, the others are as they were. */
static void tear(struct model *m)
{
    int64_t passed;

    if (m->task == HEADS_FREE || (m->task == HEADS_COMMAND && m->command.kind != REQUEST_WRITE)) {
        m->task = HEADS_FREE;
        return;
    }
    passed = mechanism_passed(&m->mechanism, &m->motion, m->now);
    m->cut.torn = m->task == HEADS_DESTAGE ? REQUEST_DESTAGE : REQUEST_WRITE;
    m->cut.torn_sector = m->motion.sector;
    m->cut.torn_count = m->motion.count;
    m->cut.torn_passed = passed;
    if (m->task == HEADS_DESTAGE) {
        if (m->write_cache == CACHE_BATTERY) {
            m->medium->restage(m->medium->context, passed);
            sectors_add(&m->cache.dirty, m->motion.sector + passed, m->motion.count - passed);
        } else {
            lose_staged(m, passed);
        }
        m->medium->unstage(m->medium->context, passed);
        cache_unstage(&m->cache);
    } else {
        for (struct request *r = m->command.list.first; r != NULL && passed > 0; r = r->next) {
            m->medium->write(m->medium->context, r, passed < r->count ? passed : r->count);
            passed -= r->count;
        }
    }
    m->task = HEADS_FREE;
}

static void fail_all(struct model *m, struct request_list *list)
{
    struct request *r;

    while ((r = list->first) != NULL) {
        request_list_remove(list, &list->first);
        complete(m, r, EIO);
    }
}

void model_power_off(struct model *m, double keep, uint64_t seed)
{
    bool was_busy = busy(m);

    int64_t failed = (int64_t)m->counters.requests_failed;

    m->cut_planned = false;
    m->cut_due = MODEL_NEVER;
    if (!m->power)
        return;
    m->cut = (struct cut){.number = m->cut.number + 1, .at = m->now};
    tear(m);
    if (m->write_cache == CACHE_BATTERY)
        m->cut.kept_sectors = m->cache.dirty.members;
    else
        lose_cache(m, keep, seed);
    m->power = false;
    if (m->command.phase != PHASE_NONE) {
        m->command.phase = PHASE_NONE;
        fail_all(m, &m->command.list);
    }
    fail_all(m, &m->waiting);
    fail_all(m, &m->incoming);
    fail_all(m, &m->constant);
    m->cut.failed = (int64_t)m->counters.requests_failed - failed;
    readahead_clear(&m->readahead);
    account_busy(m, was_busy);
}

void model_plan_cut(struct model *m, const struct cut_plan *plan)
{
    m->cut_planned = true;
    m->cut_plan = *plan;
    m->cut_due = MODEL_NEVER;
    if (plan->writes == 0)
        fix_cut(m);
}

void model_power_on(struct model *m)
{
    m->cut_planned = false;
    m->cut_due = MODEL_NEVER;
    if (m->power)
        return;
    m->power = true;
    m->head = 0;
    m->heads_sector = 0;
    mechanism_move(&m->mechanism, 0);
    m->heads_rest = m->now;
}

void model_forget_cache(struct model *m)
{
    struct sectors *dirty = &m->cache.dirty;
    bool was_busy = busy(m);

    if (m->task == HEADS_DESTAGE) {
        m->medium->unstage(m->medium->context, 0);
        cache_unstage(&m->cache);
        m->task = HEADS_FREE;
    }
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t end = sectors_next_absent(dirty, s, dirty->size);

        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
    readahead_clear(&m->readahead);
    account_busy(m, was_busy);
}
