#include "power.h"

#include "commands.h"
#include "events.h"
#include "heads.h"

#include <errno.h>

#define KEEP_SECTORS 8 /* of a random share of the cache, parts of 4 kB are kept or lost */

/* splitmix64: the same seed gives the same moments and pieces on every machine. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The writes that a planned cut waits for are done: now, or within its window. */
static void fix_cut(struct model *m)
{
    uint64_t seed = m->cut_plan.keep.seed;

    m->cut_due = m->now;
    if (m->cut_plan.within_ns > 0)
        m->cut_due += (int64_t)(next_random(&seed) % (uint64_t)m->cut_plan.within_ns);
}

void power_count_write(struct model *m)
{
    if (m->cut_planned && m->cut_plan.writes > 0 && --m->cut_plan.writes == 0)
        fix_cut(m);
}

void power_count_flush(struct model *m, const struct request *flush)
{
    if (!flush->honest && m->cut_planned && m->cut_plan.flushes > 0 && --m->cut_plan.flushes == 0)
        fix_cut(m);
}

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

/* These leave the cache. */
static void keep_on_media(struct model *m, int64_t sector, int64_t count)
{
    m->medium->keep(m->medium->context, sector, count);
    m->cut.kept_sectors += count;
    m->medium->drop(m->medium->context, sector, count);
    sectors_remove(&m->cache.dirty, sector, count);
}

/* Keep the first pieces, in the order in which they were written. */
static void keep_first(struct model *m, int64_t first)
{
    struct cache *cache = &m->cache;
    uint64_t low = 0;
    uint64_t high = cache->writes;

    /* Where they end: all pieces of the writes up to low, and some of the next. */
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;

        if (cache_pieces(cache, middle) <= first)
            low = middle;
        else
            high = middle - 1;
    }
    first -= cache_pieces(cache, low);
    for (int64_t s = sectors_next(&cache->dirty, 0); s < cache->dirty.size;) {
        int64_t end = cache_piece_end(cache, s);

        if (cache->writer[s] <= low || (cache->writer[s] == low + 1 && first-- > 0))
            keep_on_media(m, s, end - s);
        s = sectors_next(&cache->dirty, end);
    }
}

/* Keep parts of what only the cache holds, lose the others. */
static void lose_cache(struct model *m, const struct keeping *keep)
{
    struct sectors *dirty = &m->cache.dirty;
    uint64_t seed = keep->seed;

    m->cut.pieces = cache_pieces(&m->cache, m->cache.writes);
    if (keep->first > 0)
        keep_first(m, keep->first);
    for (int64_t s = sectors_next(dirty, 0); s < dirty->size; s = sectors_next(dirty, s)) {
        int64_t limit = (s / KEEP_SECTORS + 1) * KEEP_SECTORS;
        int64_t end = sectors_next_absent(dirty, s, limit < dirty->size ? limit : dirty->size);

        if (chance(&seed, keep->share)) {
            keep_on_media(m, s, end - s);
        } else {
            lose(m, s, end - s);
            m->medium->drop(m->medium->context, s, end - s);
            sectors_remove(dirty, s, end - s);
        }
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
    int64_t unit = heads_number(m, u);
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
        heads_write(m, u, passed);
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
        commands_complete(m, r, EIO);
    }
}

void model_power_off(struct model *m, const struct keeping *keep)
{
    bool was_busy = events_busy(m);

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
        lose_cache(m, keep);
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
    heads_forget_readahead(m);
    events_account_busy(m, was_busy);
}

void model_plan_cut(struct model *m, const struct cut_plan *plan)
{
    m->cut_planned = true;
    m->cut_plan = *plan;
    m->cut_due = MODEL_NEVER;
    if (!plan->follow && plan->writes == 0 && plan->flushes == 0)
        fix_cut(m);
}

void model_follow_cut(struct model *m)
{
    const struct keeping nothing = {0};

    model_power_off(m, m->cut_planned ? &m->cut_plan.keep : &nothing);
}

void model_power_on(struct model *m)
{
    m->cut_planned = false;
    m->cut_due = MODEL_NEVER;
    if (m->power)
        return;
    m->power = true;
    scheduler_reset(&m->scheduler, &m->params);
    m->scheduler.head = 0;
    for (int64_t i = 0; i < m->stripes.units; i++) {
        m->unit[i].heads_sector = 0;
        m->unit[i].heads_rest = m->now;
        mechanism_move(&m->unit[i].mechanism, 0);
    }
}
