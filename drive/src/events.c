#include "events.h"

#include "commands.h"
#include "destage.h"
#include "dispatch.h"
#include "heads.h"

bool events_busy(const struct model *m)
{
    if (m->active > 0)
        return true;
    for (int64_t i = 0; i < m->stripes.units; i++)
        if (m->unit[i].task != HEADS_FREE)
            return true;
    return false;
}

void events_account_busy(struct model *m, bool was_busy)
{
    if (!was_busy && events_busy(m))
        m->busy_since = m->now;
    else if (was_busy && !events_busy(m))
        m->counters.busy_ns += (uint64_t)(m->now - m->busy_since);
}

/* Everything that can begin at this very moment. */
static void begin_what_can(struct model *m)
{
    bool again = true;

    while (again) {
        struct command *flush;

        again = false;
        dispatch_admit(m);
        m->fresh = false;
        while (dispatch_next(m)) {
            dispatch_admit(m);
            again = true;
        }
        while (commands_let_in(m))
            again = true;
        flush =
            cache_used(&m->cache) + m->reserved == 0 ? commands_first_in(m, PHASE_FLUSHING) : NULL;
        if (flush != NULL) {
            command_enter(m, flush, PHASE_FLUSHED, m->params.flush_overhead_ns);
            again = true;
        }
        for (int64_t i = 0; i < m->stripes.units; i++)
            if (m->unit[i].task == HEADS_FREE)
                again |= heads_employ(m, &m->unit[i]);
        again |= commands_end_due(m);
    }
}

static int64_t next_internal(const struct model *m)
{
    int64_t next = MODEL_NEVER;

    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        const struct command *command = &m->command[i];

        seen += command->phase != PHASE_NONE;
        if (command_is_timed(command) && command->phase_end < next)
            next = command->phase_end;
    }
    for (int64_t i = 0; i < m->stripes.units; i++) {
        int64_t due =
            m->unit[i].task == HEADS_FREE ? destage_due(m, &m->unit[i]) : m->unit[i].motion.end;

        next = due < next ? due : next;
    }
    if (m->constant.first != NULL && m->constant.first->done < next)
        next = m->constant.first->done;
    if (m->fresh)
        next = m->now;
    if (m->scheduler.due < next)
        next = m->scheduler.due;
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
    commands_complete(m, r, 0);
}

void events_run(struct model *m, int64_t now)
{
    while (m->power) {
        int64_t next = next_internal(m);
        bool was_busy = events_busy(m);

        if (next > now)
            break;
        if (next > m->now)
            m->now = next;
        if (m->constant.first != NULL && m->constant.first->done <= m->now)
            end_constant(m);
        for (int64_t i = 0; i < m->stripes.units; i++)
            if (m->unit[i].task != HEADS_FREE && m->unit[i].motion.end <= m->now)
                heads_end(m, &m->unit[i]);
        commands_end_due(m);
        if (m->cut_due <= m->now) {
            events_account_busy(m, was_busy);
            model_power_off(m, &m->cut_plan.keep);
            break;
        }
        begin_what_can(m);
        events_account_busy(m, was_busy);
    }
    if (now > m->now)
        m->now = now;
}

int64_t model_next_event(const struct model *m)
{
    return m->power ? next_internal(m) : MODEL_NEVER;
}

bool model_event_completes(const struct model *m)
{
    int64_t next = model_next_event(m);

    for (int64_t i = 0, seen = 0; seen < m->active; i++) {
        const struct command *command = &m->command[i];

        seen += command->phase != PHASE_NONE;
        if (command_is_timed(command) && command->phase != PHASE_OVERHEAD &&
            command->phase_end <= next)
            return true;
    }
    for (int64_t i = 0; i < m->stripes.units; i++)
        if (m->unit[i].task == HEADS_COMMAND && m->unit[i].motion.end <= next)
            return true;
    return m->constant.first != NULL && m->constant.first->done <= next;
}
