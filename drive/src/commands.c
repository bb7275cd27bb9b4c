#include "commands.h"

#include "heads.h"
#include "power.h"

void commands_complete(struct model *m, struct request *r, int error)
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
        power_count_write(m);
    } else {
        c->flushes++;
        power_count_flush(m, r);
    }
    request_list_append(&m->completed, r);
}

void command_end(struct model *m, struct command *command, unsigned flags)
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
    scheduler_completed(&m->scheduler, &command->list, m->now);
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
        commands_complete(m, r, 0);
    }
    command->phase = PHASE_NONE;
    m->active--;
}

void command_flag(struct command *command, unsigned flag)
{
    for (struct request *r = command->list.first; r != NULL; r = r->next)
        r->flags |= flag;
}

void command_enter(struct model *m, struct command *command, enum command_phase phase,
                   int64_t duration)
{
    command->phase = phase;
    command->phase_end = m->now + duration;
}

void command_enter_interface(struct model *m, struct command *command)
{
    int64_t begin = m->bus_free > m->now ? m->bus_free : m->now;

    command->record.interface_ns =
        command->count * SECTOR_BYTES * NS_PER_SECOND / m->params.interface_bytes_per_s;
    m->bus_free = begin + command->record.interface_ns;
    command_enter(m, command, PHASE_INTERFACE, m->bus_free - m->now);
}

/* --- phases ---------------------------------------------------------------------------- */

static void enter_media(struct model *m, struct command *command)
{
    for (int64_t i = 0; i < m->stripes.units; i++) {
        int64_t first;

        if (heads_part(m, i, command, &first) > 0) {
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
            command_enter(m, command, PHASE_ROOM, 0);
        break;
    case REQUEST_READ:
        if (cache_holds(&m->cache, command->sector, command->count)) {
            command_flag(command, FLAG_CACHED);
            command_enter_interface(m, command);
            break;
        }
        switch (readahead_ask(readahead, command->sector, command->count, m->now, &ready)) {
        case READAHEAD_COMING:
            if (m->unit[0].task == HEADS_FREE) {
                heads_stream(m, command, ready);
                break;
            }
            enter_media(m, command);
            break;
        case READAHEAD_MISS:
            enter_media(m, command);
            break;
        case READAHEAD_HIT:
            command_flag(command, FLAG_READ_AHEAD);
            command_enter_interface(m, command);
            break;
        }
        break;
    default:
        flush = command->list.first;
        if (m->flush_lies && !flush->honest)
            command_end(m, command, FLAG_LIED);
        else if (m->write_cache == CACHE_BATTERY && !flush->honest)
            command_end(m, command, 0);
        else
            command_enter(m, command, PHASE_FLUSHING, 0);
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
    command_end(m, command, 0);
}

static void after_interface(struct model *m, struct command *command)
{
    if (command->kind == REQUEST_READ) {
        command_end(m, command, 0);
        return;
    }
    for (struct request *r = command->list.first; r != NULL; r = r->next) {
        m->medium->cache(m->medium->context, r);
        cache_take(&m->cache, r->sector, r->count);
    }
    m->reserved -= command->count;
    if ((uint64_t)model_dirty_bytes(m) > m->counters.dirty_bytes_max)
        m->counters.dirty_bytes_max = (uint64_t)model_dirty_bytes(m);
    command_end(m, command, FLAG_CACHED);
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
        command_end(m, command, 0);
        break;
    default:
        break;
    }
}

bool command_is_timed(const struct command *command)
{
    return command->phase == PHASE_OVERHEAD || command->phase == PHASE_INTERFACE ||
           command->phase == PHASE_STREAM || command->phase == PHASE_FLUSHED;
}

bool commands_end_due(struct model *m)
{
    bool ended = false;

    for (int64_t i = 0; i < m->params.queue_depth && m->active > 0; i++) {
        struct command *command = &m->command[i];

        if (command_is_timed(command) && command->phase_end <= m->now) {
            end_phase(m, command);
            ended = true;
        }
    }
    return ended;
}

/* --- all in the drive ------------------------------------------------------------------ */

struct command *commands_first_in(struct model *m, enum command_phase phase)
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

bool commands_let_in(struct model *m)
{
    struct command *command = commands_first_in(m, PHASE_ROOM);

    if (command == NULL || commands_first_in(m, PHASE_FLUSHING) != NULL ||
        !cache_has_room(&m->cache, command->count, m->reserved))
        return false;
    m->counters.room_ns += (uint64_t)(m->now - command->asked);
    m->reserved += command->count;
    command_enter_interface(m, command);
    return true;
}

bool commands_press_cache(const struct model *m)
{
    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        enum command_phase phase = m->command[i].phase;

        seen += phase != PHASE_NONE;
        if (phase == PHASE_ROOM || phase == PHASE_FLUSHING)
            return true;
    }
    return false;
}

bool commands_want_heads(const struct model *m)
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
