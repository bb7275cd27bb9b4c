#include "heads.h"

#include "commands.h"
#include "destage.h"

int64_t heads_number(const struct model *m, const struct unit *u)
{
    return u - m->unit;
}

int64_t heads_part(const struct model *m, int64_t unit, const struct command *command,
                   int64_t *first)
{
    *first = stripes_local(&m->stripes, unit, command->sector);
    return stripes_local(&m->stripes, unit, command->sector + command->count) - *first;
}

void heads_start(struct model *m, struct unit *u, enum heads_task task, int64_t local,
                 int64_t count, bool write)
{
    int64_t reached = readahead_stop(&u->readahead, m->now);

    if (reached > 0)
        mechanism_move(&u->mechanism, reached - 1);
    u->motion = mechanism_plan(&u->mechanism, local, count, write, m->now);
    u->task = task;
    u->destaged = task == HEADS_DESTAGE;
}

void heads_account(struct model *m, const struct unit *u, struct request *record)
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
    c->revolutions_waited = c->rotate_ns / (uint64_t)u->mechanism.geometry.revolution_ns;
}

/* Sectors that went to the media directly: older versions in the cache are void. */
static void supersede(struct model *m, int64_t sector, int64_t count)
{
    if (sectors_remove(&m->cache.dirty, sector, count) > 0)
        m->medium->drop(m->medium->context, sector, count);
}

void heads_write(struct model *m, const struct unit *u, int64_t count)
{
    int64_t local = u->motion.sector;

    while (count > 0) {
        int64_t run = stripes_run(&m->stripes, local, count);
        int64_t first = stripes_host(&m->stripes, heads_number(m, u), local);

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

void heads_end(struct model *m, struct unit *u)
{
    const struct motion *motion = &u->motion;
    struct command *command = u->command;
    enum heads_task task = u->task;
    int64_t last = motion->sector + motion->count - 1;

    mechanism_move(&u->mechanism, last);
    u->heads_sector = stripes_host(&m->stripes, heads_number(m, u), last) + 1;
    u->task = HEADS_FREE;
    if (task == HEADS_DESTAGE) {
        destage_end(m, u);
        return;
    }
    heads_account(m, u, &command->record);
    u->heads_rest = m->now;
    if (command->kind == REQUEST_WRITE) {
        m->counters.media_writes++;
        heads_write(m, u, motion->count);
    } else {
        m->counters.media_reads++;
        readahead_start(&u->readahead, motion->sector, motion->count, m->now);
    }
    if (--command->parts == 0)
        command_end(m, command, 0);
}

void heads_stream(struct model *m, struct command *command, int64_t ready)
{
    struct unit *u = &m->unit[0]; /* drives that read ahead have one */

    command_flag(command, FLAG_READ_AHEAD);
    command->wanted = 0;
    u->task = HEADS_STREAM;
    u->command = command;
    u->motion.end = MODEL_NEVER;
    command_enter(m, command, PHASE_STREAM, ready - m->now);
}

/* Waiting reads that the read-ahead has by now, or soon; true if the heads stay for one. */
static bool serve_from_readahead(struct model *m, struct unit *u)
{
    if (!u->readahead.active || m->params.queue_depth == 1)
        return false;
    for (int64_t i = 0; i < m->params.queue_depth; i++) {
        struct command *command = &m->command[i];
        int64_t ready;

        if (command->phase != PHASE_MEDIA || command->wanted == 0 || command->kind != REQUEST_READ)
            continue;
        switch (readahead_ask(&u->readahead, command->sector, command->count, m->now, &ready)) {
        case READAHEAD_HIT:
            m->counters.wait_ns += (uint64_t)(m->now - command->asked);
            command_flag(command, FLAG_READ_AHEAD);
            command->wanted = 0;
            command_enter_interface(m, command);
            break;
        case READAHEAD_COMING:
            m->counters.wait_ns += (uint64_t)(m->now - command->asked);
            command->asked = m->now;
            heads_stream(m, command, ready);
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
    int64_t unit = heads_number(m, u);
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
        count = heads_part(m, unit, command, &first);
        if (m->active == 1 || u->mechanism.flash)
            continue;
        motion =
            mechanism_plan(&u->mechanism, first, count, command->kind == REQUEST_WRITE, m->now);
        if (motion.seek_ns + motion.rotate_ns < best_ns) {
            best = command;
            best_ns = motion.seek_ns + motion.rotate_ns;
        }
    }
    if (best == NULL || m->now - oldest->asked > m->params.queue_patience_ns)
        return oldest;
    return best;
}

bool heads_employ(struct model *m, struct unit *u)
{
    struct command *command;
    int64_t first;
    int64_t count;

    if (m->active > 0 && serve_from_readahead(m, u))
        return true;
    command = m->active > 0 ? next_for(m, u) : NULL;
    /* A queue of reads must not keep a flush waiting for ever: turn and turn about. */
    if ((command == NULL || (!u->destaged && commands_press_cache(m))) &&
        destage_due(m, u) <= m->now) {
        destage_start(m, u);
        return false;
    }
    if (command == NULL)
        return false;
    count = heads_part(m, heads_number(m, u), command, &first);
    command->wanted &= ~(UINT32_C(1) << heads_number(m, u));
    u->command = command;
    m->counters.wait_ns += (uint64_t)(m->now - command->asked);
    heads_start(m, u, HEADS_COMMAND, first, count, command->kind == REQUEST_WRITE);
    return false;
}

void heads_forget_readahead(struct model *m)
{
    for (int64_t i = 0; i < m->stripes.units; i++)
        readahead_clear(&m->unit[i].readahead);
}
