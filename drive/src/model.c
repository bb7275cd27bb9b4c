#include "model.h"

#include "commands.h"
#include "destage.h"
#include "errors.h"
#include "events.h"
#include "heads.h"

#include <errno.h>
#include <string.h>

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
    scheduler_reset(&m->scheduler, p);
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

static void submit_untimed(struct model *m, struct request *r)
{
    r->start = m->now;
    r->flags |= FLAG_UNTIMED;
    if (r->kind == REQUEST_WRITE)
        m->medium->write(m->medium->context, r, r->sector, r->count);
    commands_complete(m, r, 0);
}

void model_submit(struct model *m, struct request *r, int64_t now)
{
    events_run(m, now);
    r->arrival = m->now;
    r->sequence = ++m->sequence;
    r->command = 0;
    r->start = m->now;
    r->done = m->now;
    r->overhead_ns = r->interface_ns = r->seek_ns = r->rotate_ns = r->transfer_ns = 0;
    r->flags = r->fua ? FLAG_FUA : 0;
    r->error = 0;
    m->in_flight++;
    if (!m->power || errors_fail(m, r)) {
        commands_complete(m, r, EIO);
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

void model_catch_up(struct model *m, int64_t now)
{
    events_run(m, now);
}

struct request *model_advance(struct model *m, int64_t now)
{
    struct request *list;

    events_run(m, now);
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

    destage_end_all(m, true);
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t end = sectors_next_absent(dirty, s, dirty->size);

        m->medium->keep(m->medium->context, s, end - s);
        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
}

void model_forget_cache(struct model *m)
{
    struct sectors *dirty = &m->cache.dirty;

    destage_end_all(m, false);
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t end = sectors_next_absent(dirty, s, dirty->size);

        m->medium->drop(m->medium->context, s, end - s);
        sectors_remove(dirty, s, end - s);
    }
    heads_forget_readahead(m);
}

void model_set_timing(struct model *m, bool on)
{
    m->timing = on;
    /* Untimed writes pass the read-ahead by. */
    heads_forget_readahead(m);
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

void model_reset_counters(struct model *m)
{
    memset(&m->counters, 0, sizeof m->counters);
    m->counters.dirty_bytes_max = (uint64_t)model_dirty_bytes(m);
    if (events_busy(m))
        m->busy_since = m->now;
}
