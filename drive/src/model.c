#include "model.h"

#include <errno.h>
#include <string.h>

#define KEEP_SECTORS 8 /* a power cut keeps or loses pieces of 4 kB */

int64_t model_capacity(const struct params *p)
{
    struct mechanism mechanism;
    int64_t sectors;

    mechanism_init(&mechanism, p);
    sectors = mechanism_sectors(&mechanism);
    if (p->units == 1)
        return sectors;
    /* Whole chunks only. */
    return sectors / (p->stripe_bytes / SECTOR_BYTES) * (p->stripe_bytes / SECTOR_BYTES) * p->units;
}

void model_set_params(struct model *m, const struct params *p)
{
    m->params = *p;
    m->stripes = (struct stripes){.units = p->units, .sectors = p->stripe_bytes / SECTOR_BYTES};
    m->scheduler = scheduler_named((enum scheduler_kind)p->scheduler);
    for (int64_t i = 0; i < p->units; i++) {
        struct unit *u = &m->unit[i];

        *u = (struct unit){.heads_rest = m->now};
        mechanism_init(&u->mechanism, p);
        readahead_init(&u->readahead, p, &u->mechanism, m->sectors);
    }
    cache_adopt(&m->cache, p);
    if (m->cache.capacity == 0)
        m->write_cache = CACHE_OFF;
}

bool model_init(struct model *m, const struct params *p, int64_t sectors,
                const struct medium *medium)
{
    memset(m, 0, sizeof *m);
    m->medium = medium;
    m->sectors = sectors;
    request_list_init(&m->incoming);
    request_list_init(&m->waiting);
    request_list_init(&m->constant);
    request_list_init(&m->completed);
    m->timing = true;
    m->power = true;
    m->cut_due = MODEL_NEVER;
    if (!cache_init(&m->cache, p, sectors))
        return false;
    model_set_params(m, p);
    return true;
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
    if (m->active > 0)
        return true;
    for (int64_t i = 0; i < m->stripes.units; i++)
        if (m->unit[i].task != HEADS_FREE)
            return true;
    return false;
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

static void end_command(struct model *m, struct command *command, unsigned flags)
{
    struct request *record = &command->record;
    struct request *r;
    bool leader = true;

    m->counters.command_ns += (uint64_t)(m->now - record->start);
    m->counters.overhead_ns += (uint64_t)record->overhead_ns;
    m->counters.interface_ns += (uint64_t)record->interface_ns;
    if (command->kind == REQUEST_FLUSH) {
        m->counters.flush_ns += (uint64_t)(m->now - record->start);
        m->flushes--;
    }
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
    m->active--;
}

static void flag_command(struct command *command, unsigned flag)
{
    for (struct request *r = command->list.first; r != NULL; r = r->next)
        r->flags |= flag;
}

static void enter(struct model *m, struct command *command, enum command_phase phase,
                  int64_t duration)
{
    command->phase = phase;
    command->phase_end = m->now + duration;
}

/* The interface carries one transfer at a time. */
static void enter_interface(struct model *m, struct command *command)
{
    int64_t begin = m->bus_free > m->now ? m->bus_free : m->now;

    command->record.interface_ns =
        command->count * SECTOR_BYTES * NS_PER_SECOND / m->params.interface_bytes_per_s;
    m->bus_free = begin + command->record.interface_ns;
    enter(m, command, PHASE_INTERFACE, m->bus_free - m->now);
}

/* --- heads ----------------------------------------------------------------------------- */

static int64_t number_of(const struct model *m, const struct unit *u)
{
    return u - m->unit;
}

/* The unit's part of a command -> its own sectors; how many there are. */
static int64_t part_of(const struct model *m, int64_t unit, const struct command *command,
                       int64_t *first)
{
    *first = stripes_local(&m->stripes, unit, command->sector);
    return stripes_local(&m->stripes, unit, command->sector + command->count) - *first;
}

static void start_heads(struct model *m, struct unit *u, enum heads_task task, int64_t local,
                        int64_t count, bool write)
{
    int64_t reached = readahead_stop(&u->readahead, m->now);

    if (reached > 0)
        mechanism_move(&u->mechanism, reached - 1);
    u->motion = mechanism_plan(&u->mechanism, local, count, write, m->now);
    u->task = task;
    u->destaged = task == HEADS_DESTAGE;
}

static void account_heads(struct model *m, const struct unit *u, struct request *record)
{
    const struct motion *motion = &u->motion;
    struct counters *c = &m->counters;

    record->seek_ns = motion->seek_ns;
    record->rotate_ns = motion->rotate_ns;
    record->transfer_ns = motion->transfer_ns;
    c->seek_ns += (uint64_t)motion->seek_ns;
    c->rotate_ns += (uint64_t)motion->rotate_ns;
    c->transfer_ns += (uint64_t)motion->transfer_ns;
    c->media_ns += (uint64_t)(motion->end - motion->start);
    c->revolutions_waited =
        c->rotate_ns / (uint64_t)u->mechanism.geometry.revolution_ns;
}

static void start_destage(struct model *m, struct unit *u)
{
    struct cache *cache = &m->cache;
    int64_t unit = number_of(m, u);
    const struct staged *staged = &cache->staged[unit];

    /* Nearest above the heads, so that a round over the disk is one sweep. */
    cache_stage(cache, &m->stripes, unit, u->heads_sector, m->params.merge_bytes / SECTOR_BYTES);
    m->medium->stage(m->medium->context, unit, staged->sector, staged->count);
    start_heads(m, u, HEADS_DESTAGE, stripes_local(&m->stripes, unit, staged->sector),
                staged->count, true);
}

static void end_destage(struct model *m, struct unit *u)
{
    int64_t unit = number_of(m, u);
    const struct staged *staged = &m->cache.staged[unit];
    struct request record = {
        .kind = REQUEST_DESTAGE,
        .sector = staged->sector,
        .count = staged->count,
        .arrival = u->motion.start,
        .start = u->motion.start,
        .done = u->motion.end,
    };

    m->medium->unstage(m->medium->context, unit, staged->count);
    cache_unstage(&m->cache, unit);
    m->counters.destages++;
    m->counters.sectors_destaged += (uint64_t)record.count;
    account_heads(m, u, &record);
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

/* The first count sectors of what the heads write for a command are on the media. */
static void write_part(struct model *m, const struct unit *u, int64_t count)
{
    int64_t local = u->motion.sector;

    while (count > 0) {
        int64_t run = stripes_run(&m->stripes, local, count);
        int64_t first = stripes_host(&m->stripes, number_of(m, u), local);

        for (struct request *r = u->command->list.first; r != NULL; r = r->next) {
            int64_t begin = r->sector > first ? r->sector : first;
            int64_t end = r->sector + r->count < first + run ? r->sector + r->count : first + run;

            if (begin < end)
                m->medium->write(m->medium->context, r, begin, end - begin);
        }
        supersede(m, first, run);
        local += run;
        count -= run;
    }
}

static void end_heads(struct model *m, struct unit *u)
{
    const struct motion *motion = &u->motion;
    struct command *command = u->command;
    enum heads_task task = u->task;
    int64_t last = motion->sector + motion->count - 1;

    mechanism_move(&u->mechanism, last);
    u->heads_sector = stripes_host(&m->stripes, number_of(m, u), last) + 1;
    u->task = HEADS_FREE;
    if (task == HEADS_DESTAGE) {
        end_destage(m, u);
        return;
    }
    account_heads(m, u, &command->record);
    u->heads_rest = m->now;
    if (command->kind == REQUEST_WRITE) {
        m->counters.media_writes++;
        write_part(m, u, motion->count);
    } else {
        m->counters.media_reads++;
        readahead_start(&u->readahead, motion->sector, motion->count, m->now);
    }
    if (--command->parts == 0)
        end_command(m, command, 0);
}

/* The read-ahead under way will have it; the heads stay with it until then. */
static void enter_stream(struct model *m, struct command *command, int64_t ready)
{
    struct unit *u = &m->unit[0]; /* drives that read ahead have one */

    flag_command(command, FLAG_READ_AHEAD);
    command->wanted = 0;
    u->task = HEADS_STREAM;
    u->command = command;
    u->motion.end = MODEL_NEVER;
    enter(m, command, PHASE_STREAM, ready - m->now);
}

/* Waiting reads that the read-ahead has by now, or soon; true if the heads stay for one. */
static bool serve_from_readahead(struct model *m, struct unit *u)
{
    if (!u->readahead.active || m->params.queue_depth == 1)
        return false;
    for (int64_t i = 0; i < m->params.queue_depth; i++) {
        struct command *command = &m->command[i];
        int64_t ready;

        if (command->phase != PHASE_MEDIA || command->wanted == 0 ||
            command->kind != REQUEST_READ)
            continue;
        switch (readahead_ask(&u->readahead, command->sector, command->count, m->now, &ready)) {
        case READAHEAD_HIT:
            m->counters.wait_ns += (uint64_t)(m->now - command->asked);
            flag_command(command, FLAG_READ_AHEAD);
            command->wanted = 0;
            enter_interface(m, command);
            break;
        case READAHEAD_COMING:
            m->counters.wait_ns += (uint64_t)(m->now - command->asked);
            command->asked = m->now;
            enter_stream(m, command, ready);
            return true;
        case READAHEAD_MISS:
            break;
        }
    }
    return false;
}

/*
 * What the unit does next of what waits for it: the shortest positioning time;
 * but first whoever has waited too long. NULL: nothing waits.
 */
static struct command *next_for(struct model *m, const struct unit *u)
{
    int64_t unit = number_of(m, u);
    struct command *best = NULL;
    struct command *oldest = NULL;
    int64_t best_ns = INT64_MAX;

    for (int64_t i = 0; i < m->params.queue_depth; i++) {
        struct command *command = &m->command[i];
        struct motion motion;
        int64_t first;
        int64_t count;

        if (command->phase != PHASE_MEDIA || !(command->wanted >> unit & 1))
            continue;
        if (oldest == NULL || command->number < oldest->number)
            oldest = command;
        count = part_of(m, unit, command, &first);
        if (m->active == 1 || u->mechanism.flash)
            continue;
        motion = mechanism_plan(&u->mechanism, first, count, command->kind == REQUEST_WRITE,
                                m->now);
        if (motion.seek_ns + motion.rotate_ns < best_ns) {
            best = command;
            best_ns = motion.seek_ns + motion.rotate_ns;
        }
    }
    if (best == NULL || m->now - oldest->asked > m->params.queue_patience_ns)
        return oldest;
    return best;
}

/* --- commands -------------------------------------------------------------------------- */

/* What arrived before a flush goes into the elevator; the flush and the rest wait. */
static void admit(struct model *m)
{
    while (m->incoming.first != NULL && m->incoming.first->kind != REQUEST_FLUSH) {
        struct request *r = m->incoming.first;

        request_list_remove(&m->incoming, &m->incoming.first);
        request_list_append(&m->waiting, r);
    }
}

/* The drive keeps no order among its commands, so those of the same sectors must not meet. */
static bool conflicts(const void *context, const struct request *r)
{
    const struct model *m = context;

    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        const struct command *command = &m->command[i];

        if (command->phase == PHASE_NONE)
            continue;
        seen++;
        if ((command->kind == REQUEST_WRITE || r->kind == REQUEST_WRITE) &&
            command->sector < r->sector + r->count && r->sector < command->sector + command->count)
            return true;
    }
    return false;
}

/* The next command of the elevator -> list; false if there is none for now. */
static bool take_command(struct model *m, struct request_list *list)
{
    struct conflict conflict = {conflicts, m};
    struct request *flush = m->incoming.first;
    bool barrier = !m->params.queued_flush;

    if (m->active == m->params.queue_depth || (barrier && m->flushes > 0))
        return false;
    /* What is incoming begins with a flush, see admit(). */
    if (flush != NULL && (!barrier || (m->waiting.first == NULL && m->active == 0))) {
        request_list_remove(&m->incoming, &m->incoming.first);
        request_list_init(list);
        request_list_append(list, flush);
        return true;
    }
    return m->waiting.first != NULL &&
           scheduler_take(m->scheduler, &m->waiting, m->head, m->params.merge_bytes / SECTOR_BYTES,
                          &conflict, list);
}

/* The elevator gives the drive a command, if it may; false if not. */
static bool dispatch(struct model *m)
{
    struct command *command = m->command;
    struct request_list list;
    const struct request *r;

    if (!take_command(m, &list))
        return false;
    while (command->phase != PHASE_NONE)
        command++;
    memset(command, 0, sizeof *command);
    request_list_init(&command->list);
    while (list.first != NULL) {
        struct request *first = list.first;

        request_list_remove(&list, &list.first);
        request_list_append(&command->list, first);
    }
    r = command->list.first;
    command->kind = r->kind;
    command->number = ++m->number;
    command->sector = r->sector;
    for (const struct request *each = r; each != NULL; each = each->next)
        command->count += each->count;
    if (r->kind == REQUEST_FLUSH)
        m->flushes++;
    else
        m->head = command->sector + command->count;
    /* A command longer than the whole cache cannot go through it. */
    command->through = r->kind == REQUEST_WRITE &&
                       (m->write_cache == CACHE_OFF ||
                        (r->fua && m->write_cache != CACHE_BATTERY) ||
                        command->count > m->cache.capacity);
    command->record.start = m->now;
    command->record.overhead_ns = m->params.command_overhead_ns;
    m->active++;
    m->counters.commands++;
    enter(m, command, PHASE_OVERHEAD, m->params.command_overhead_ns);
    return true;
}

static void enter_media(struct model *m, struct command *command)
{
    for (int64_t i = 0; i < m->stripes.units; i++) {
        int64_t first;

        if (part_of(m, i, command, &first) > 0) {
            command->wanted |= UINT32_C(1) << i;
            command->parts++;
        }
    }
    command->phase = PHASE_MEDIA;
}

static void after_overhead(struct model *m, struct command *command)
{
    struct readahead *readahead = &m->unit[0].readahead;
    const struct request *flush;
    int64_t ready;

    command->asked = m->now;
    switch (command->kind) {
    case REQUEST_WRITE:
        readahead_forget(readahead, command->sector, command->count, m->now);
        if (command->through)
            enter_media(m, command);
        else
            enter(m, command, PHASE_ROOM, 0);
        break;
    case REQUEST_READ:
        if (cache_holds(&m->cache, command->sector, command->count)) {
            flag_command(command, FLAG_CACHED);
            enter_interface(m, command);
            break;
        }
        switch (readahead_ask(readahead, command->sector, command->count, m->now, &ready)) {
        case READAHEAD_COMING:
            if (m->unit[0].task == HEADS_FREE) {
                enter_stream(m, command, ready);
                break;
            }
            enter_media(m, command);
            break;
        case READAHEAD_MISS:
            enter_media(m, command);
            break;
        case READAHEAD_HIT:
            flag_command(command, FLAG_READ_AHEAD);
            enter_interface(m, command);
            break;
        }
        break;
    default:
        flush = command->list.first;
        if (m->flush_lies && !flush->honest)
            end_command(m, command, FLAG_LIED);
        else if (m->write_cache == CACHE_BATTERY && !flush->honest)
            end_command(m, command, 0);
        else
            enter(m, command, PHASE_FLUSHING, 0);
        break;
    }
}

static void after_stream(struct model *m, struct command *command)
{
    int64_t waited = m->now - command->asked;

    /* The sectors passed meanwhile; the interface carried them as they came. */
    command->record.transfer_ns = waited;
    m->counters.transfer_ns += (uint64_t)waited;
    m->counters.media_ns += (uint64_t)waited;
    m->unit[0].heads_rest = m->now;
    m->unit[0].task = HEADS_FREE;
    end_command(m, command, 0);
}

static void after_interface(struct model *m, struct command *command)
{
    if (command->kind == REQUEST_READ) {
        end_command(m, command, 0);
        return;
    }
    for (struct request *r = command->list.first; r != NULL; r = r->next) {
        m->medium->cache(m->medium->context, r);
        sectors_add(&m->cache.dirty, r->sector, r->count);
    }
    m->reserved -= command->count;
    if ((uint64_t)model_dirty_bytes(m) > m->counters.dirty_bytes_max)
        m->counters.dirty_bytes_max = (uint64_t)model_dirty_bytes(m);
    end_command(m, command, FLAG_CACHED);
}

static void end_phase(struct model *m, struct command *command)
{
    switch (command->phase) {
    case PHASE_OVERHEAD:
        after_overhead(m, command);
        break;
    case PHASE_INTERFACE:
        after_interface(m, command);
        break;
    case PHASE_STREAM:
        after_stream(m, command);
        break;
    case PHASE_FLUSHED:
        command->record.overhead_ns += m->params.flush_overhead_ns;
        end_command(m, command, 0);
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

/* The first of the commands in that phase to have come; NULL: none. */
static struct command *first_in(struct model *m, enum command_phase phase)
{
    struct command *first = NULL;

    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        struct command *command = &m->command[i];

        if (command->phase == PHASE_NONE)
            continue;
        seen++;
        if (command->phase == phase && (first == NULL || command->number < first->number))
            first = command;
    }
    return first;
}

/* Something waits for the cache to become emptier. */
static bool cache_is_pressed(const struct model *m)
{
    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        enum command_phase phase = m->command[i].phase;

        seen += phase != PHASE_NONE;
        if (phase == PHASE_ROOM || phase == PHASE_FLUSHING)
            return true;
    }
    return false;
}

/* A command that is going to need the heads gets them. */
static bool heads_are_wanted(const struct model *m)
{
    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        const struct command *command = &m->command[i];

        if (command->phase == PHASE_NONE)
            continue;
        seen++;
        if (command->kind == REQUEST_READ || command->through)
            return true;
    }
    return false;
}

/* When the unit starts destaging if nothing else happens. */
static int64_t destage_due(const struct model *m, const struct unit *u)
{
    int64_t due = m->now;

    if (m->cache.dirty.members == 0 || u->task != HEADS_FREE || !m->power)
        return MODEL_NEVER;
    if (!cache_is_pressed(m)) {
        if (m->destage_paused || heads_are_wanted(m))
            return MODEL_NEVER;
        /* Just switched off, nothing may linger; else the heads rest first. */
        if (m->write_cache != CACHE_OFF && u->heads_rest + m->params.destage_idle_ns > due)
            due = u->heads_rest + m->params.destage_idle_ns;
    }
    return cache_next(&m->cache, &m->stripes, number_of(m, u), u->heads_sector) < 0 ? MODEL_NEVER
                                                                                    : due;
}

/* The heads are free: give them something to do. True if a command's phase may have changed. */
static bool employ(struct model *m, struct unit *u)
{
    struct command *command;
    int64_t first;
    int64_t count;

    if (m->active > 0 && serve_from_readahead(m, u))
        return true;
    command = m->active > 0 ? next_for(m, u) : NULL;
    /* A queue of reads must not keep a flush waiting for ever: turn and turn about. */
    if ((command == NULL || (!u->destaged && cache_is_pressed(m))) &&
        destage_due(m, u) <= m->now) {
        start_destage(m, u);
        return false;
    }
    if (command == NULL)
        return false;
    count = part_of(m, number_of(m, u), command, &first);
    command->wanted &= ~(UINT32_C(1) << number_of(m, u));
    u->command = command;
    m->counters.wait_ns += (uint64_t)(m->now - command->asked);
    start_heads(m, u, HEADS_COMMAND, first, count, command->kind == REQUEST_WRITE);
    return false;
}

/* A write that the cache has room for; while a flush empties it, new ones stay out. */
static bool let_in(struct model *m)
{
    struct command *command = first_in(m, PHASE_ROOM);

    if (command == NULL || first_in(m, PHASE_FLUSHING) != NULL ||
        !cache_has_room(&m->cache, command->sector, command->count, m->reserved))
        return false;
    m->counters.room_ns += (uint64_t)(m->now - command->asked);
    m->reserved += command->count;
    enter_interface(m, command);
    return true;
}

static bool end_due_phases(struct model *m)
{
    bool ended = false;

    for (int64_t i = 0; i < m->params.queue_depth && m->active > 0; i++) {
        struct command *command = &m->command[i];

        if (phase_is_timed(command->phase) && command->phase_end <= m->now) {
            end_phase(m, command);
            ended = true;
        }
    }
    return ended;
}

/* Everything that can begin at this very moment. */
static void begin_what_can(struct model *m)
{
    bool again = true;

    while (again) {
        struct command *flush;

        again = false;
        admit(m);
        m->fresh = false;
        while (dispatch(m)) {
            admit(m);
            again = true;
        }
        while (let_in(m))
            again = true;
        flush = cache_used(&m->cache) + m->reserved == 0 ? first_in(m, PHASE_FLUSHING) : NULL;
        if (flush != NULL) {
            enter(m, flush, PHASE_FLUSHED, m->params.flush_overhead_ns);
            again = true;
        }
        for (int64_t i = 0; i < m->stripes.units; i++)
            if (m->unit[i].task == HEADS_FREE)
                again |= employ(m, &m->unit[i]);
        again |= end_due_phases(m);
    }
}

static int64_t next_internal(const struct model *m)
{
    int64_t next = MODEL_NEVER;

    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        const struct command *command = &m->command[i];

        seen += command->phase != PHASE_NONE;
        if (phase_is_timed(command->phase) && command->phase_end < next)
            next = command->phase_end;
    }
    for (int64_t i = 0; i < m->stripes.units; i++) {
        int64_t due = m->unit[i].task == HEADS_FREE ? destage_due(m, &m->unit[i])
                                                    : m->unit[i].motion.end;

        next = due < next ? due : next;
    }
    if (m->constant.first != NULL && m->constant.first->done < next)
        next = m->constant.first->done;
    if (m->fresh)
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
        m->medium->write(m->medium->context, r, r->sector, r->count);
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
        for (int64_t i = 0; i < m->stripes.units; i++)
            if (m->unit[i].task != HEADS_FREE && m->unit[i].motion.end <= m->now)
                end_heads(m, &m->unit[i]);
        end_due_phases(m);
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
        m->medium->write(m->medium->context, r, r->sector, r->count);
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
        m->fresh = true;
    }
}

bool model_event_completes(const struct model *m)
{
    int64_t next = model_next_event(m);

    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        const struct command *command = &m->command[i];

        seen += command->phase != PHASE_NONE;
        if (phase_is_timed(command->phase) && command->phase != PHASE_OVERHEAD &&
            command->phase_end <= next)
            return true;
    }
    for (int64_t i = 0; i < m->stripes.units; i++)
        if (m->unit[i].task == HEADS_COMMAND && m->unit[i].motion.end <= next)
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

/* Whatever is being destaged is on the media at once, or is void. */
static void end_destages(struct model *m, bool written)
{
    bool was_busy = busy(m);

    for (int64_t i = 0; i < m->stripes.units; i++) {
        if (m->unit[i].task != HEADS_DESTAGE)
            continue;
        m->medium->unstage(m->medium->context, i, written ? m->cache.staged[i].count : 0);
        cache_unstage(&m->cache, i);
        m->unit[i].task = HEADS_FREE;
    }
    account_busy(m, was_busy);
}

void model_settle(struct model *m)
{
    struct sectors *dirty = &m->cache.dirty;

    end_destages(m, true);
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t end = sectors_next_absent(dirty, s, dirty->size);

        m->medium->keep(m->medium->context, s, end - s);
        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
}

static void clear_readahead(struct model *m)
{
    for (int64_t i = 0; i < m->stripes.units; i++)
        readahead_clear(&m->unit[i].readahead);
}

void model_set_timing(struct model *m, bool on)
{
    m->timing = on;
    /* Untimed writes pass the read-ahead by. */
    clear_readahead(m);
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

/* What only the cache held of a destaging write that was cut; newer versions are dirty. */
static void lose_staged(struct model *m, const struct staged *staged, int64_t passed)
{
    int64_t end = staged->sector + staged->count;

    for (int64_t s = staged->sector + passed; s < end;) {
        int64_t dirty = sectors_next(&m->cache.dirty, s);

        dirty = dirty < end ? dirty : end;
        if (dirty > s)
            lose(m, s, dirty - s);
        s = sectors_next_absent(&m->cache.dirty, dirty, end);
    }
}

/* The sectors that have passed are on the media, the others are as they were. */
static void tear(struct model *m, struct unit *u)
{
    int64_t unit = number_of(m, u);
    const struct staged *staged = &m->cache.staged[unit];
    enum heads_task task = u->task;
    int64_t passed;

    u->task = HEADS_FREE;
    if (task != HEADS_DESTAGE && (task != HEADS_COMMAND || u->command->kind != REQUEST_WRITE))
        return;
    passed = mechanism_passed(&u->mechanism, &u->motion, m->now);
    if (m->cut.torn_count == 0) {
        m->cut.torn = task == HEADS_DESTAGE ? REQUEST_DESTAGE : REQUEST_WRITE;
        m->cut.torn_sector = stripes_host(&m->stripes, unit, u->motion.sector);
        m->cut.torn_count = u->motion.count;
        m->cut.torn_passed = passed;
    }
    if (task == HEADS_COMMAND) {
        write_part(m, u, passed);
        return;
    }
    if (m->write_cache == CACHE_BATTERY) {
        m->medium->restage(m->medium->context, unit, passed);
        sectors_add(&m->cache.dirty, staged->sector + passed, staged->count - passed);
    } else {
        lose_staged(m, staged, passed);
    }
    m->medium->unstage(m->medium->context, unit, passed);
    cache_unstage(&m->cache, unit);
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
    for (int64_t i = 0; i < m->stripes.units; i++)
        tear(m, &m->unit[i]);
    if (m->write_cache == CACHE_BATTERY)
        m->cut.kept_sectors = m->cache.dirty.members;
    else
        lose_cache(m, keep, seed);
    m->power = false;
    for (int64_t i = 0; i < m->params.queue_depth; i++)
        if (m->command[i].phase != PHASE_NONE) {
            m->command[i].phase = PHASE_NONE;
            fail_all(m, &m->command[i].list);
        }
    m->active = 0;
    m->flushes = 0;
    m->reserved = 0;
    m->bus_free = m->now;
    fail_all(m, &m->waiting);
    fail_all(m, &m->incoming);
    fail_all(m, &m->constant);
    m->cut.failed = (int64_t)m->counters.requests_failed - failed;
    clear_readahead(m);
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
    for (int64_t i = 0; i < m->stripes.units; i++) {
        m->unit[i].heads_sector = 0;
        m->unit[i].heads_rest = m->now;
        mechanism_move(&m->unit[i].mechanism, 0);
    }
}

void model_forget_cache(struct model *m)
{
    struct sectors *dirty = &m->cache.dirty;

    end_destages(m, false);
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t end = sectors_next_absent(dirty, s, dirty->size);

        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
    clear_readahead(m);
}
