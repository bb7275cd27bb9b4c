#include "destage.h"

#include "commands.h"
#include "events.h"
#include "heads.h"

int64_t destage_due(const struct model *m, const struct unit *u)
{
    int64_t due = m->now;

    if (m->cache.dirty.members == 0 || u->task != HEADS_FREE || !m->power)
        return MODEL_NEVER;
    if (!commands_press_cache(m)) {
        if (m->destage_paused || commands_want_heads(m))
            return MODEL_NEVER;
        /* Just switched off, nothing may linger; else the heads rest first. */
        if (m->write_cache != CACHE_OFF && u->heads_rest + m->params.destage_idle_ns > due)
            due = u->heads_rest + m->params.destage_idle_ns;
    }
    return cache_next(&m->cache, &m->stripes, heads_number(m, u), u->heads_sector) < 0 ? MODEL_NEVER
                                                                                       : due;
}

void destage_start(struct model *m, struct unit *u)
{
    struct cache *cache = &m->cache;
    int64_t unit = heads_number(m, u);
    const struct staged *staged = &cache->staged[unit];

    /* Nearest above the heads, so that a round over the disk is one sweep. */
    cache_stage(cache, &m->stripes, unit, u->heads_sector, m->params.merge_bytes / SECTOR_BYTES);
    m->medium->stage(m->medium->context, unit, staged->sector, staged->count);
    heads_start(m, u, HEADS_DESTAGE, stripes_local(&m->stripes, unit, staged->sector),
                staged->count, true);
}

void destage_end(struct model *m, struct unit *u)
{
    int64_t unit = heads_number(m, u);
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
    heads_account(m, u, &record);
    record.sequence = ++m->sequence;
    if (m->medium->destaged != NULL)
        m->medium->destaged(m->medium->context, &record);
}

void destage_end_all(struct model *m, bool written)
{
    bool was_busy = events_busy(m);

    for (int64_t i = 0; i < m->stripes.units; i++) {
        if (m->unit[i].task != HEADS_DESTAGE)
            continue;
        m->medium->unstage(m->medium->context, i, written ? m->cache.staged[i].count : 0);
        cache_unstage(&m->cache, i);
        m->unit[i].task = HEADS_FREE;
    }
    events_account_busy(m, was_busy);
}
