#include "dispatch.h"

#include "commands.h"

#include <string.h>

void dispatch_admit(struct model *m)
{
    while (m->incoming.first != NULL && m->incoming.first->kind != REQUEST_FLUSH) {
        struct request *r = m->incoming.first;

        request_list_remove(&m->incoming, &m->incoming.first);
        scheduler_admit(&m->scheduler, &m->waiting, r, m->now);
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

    m->scheduler.due = SCHEDULER_NEVER;
    if (m->active == m->params.queue_depth || (barrier && m->flushes > 0))
        return false;
    /* What is incoming begins with a flush, see dispatch_admit(). */
    if (flush != NULL && (!barrier || (m->waiting.first == NULL && m->active == 0))) {
        request_list_remove(&m->incoming, &m->incoming.first);
        request_list_init(list);
        request_list_append(list, flush);
        return true;
    }
    m->scheduler.patient = flush == NULL;
    return m->waiting.first != NULL &&
           scheduler_take(&m->scheduler, &m->waiting, m->now, &conflict, list);
}

bool dispatch_next(struct model *m)
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
    /* A command longer than the whole cache cannot go through it. */
    command->through = r->kind == REQUEST_WRITE && (m->write_cache == CACHE_OFF ||
                                                    (r->fua && m->write_cache != CACHE_BATTERY) ||
                                                    command->count > m->cache.capacity);
    command->record.start = m->now;
    command->record.overhead_ns = m->params.command_overhead_ns;
    m->active++;
    m->counters.commands++;
    command_enter(m, command, PHASE_OVERHEAD, m->params.command_overhead_ns);
    return true;
}
