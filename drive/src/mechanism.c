#include "mechanism.h"

void mechanism_init(struct mechanism *m, const struct params *p)
{
    geometry_init(&m->geometry, p);
    seek_init(&m->seek, p);
    m->head_switch_ns = p->head_switch_ns;
    m->write_settle_ns = p->write_settle_ns;
    m->cylinder = 0;
    m->head = 0;
    m->flash = p->flash_bytes > 0;
    m->flash_sectors = p->flash_bytes / SECTOR_BYTES;
    m->flash_read_ns = p->flash_read_ns;
    m->flash_program_ns = p->flash_program_ns;
    m->flash_bytes_per_s = p->flash_bytes_per_s;
}

int64_t mechanism_sectors(const struct mechanism *m)
{
    return m->flash ? m->flash_sectors : m->geometry.sectors;
}

static int64_t flash_fixed(const struct mechanism *m, bool write)
{
    return write ? m->flash_program_ns : m->flash_read_ns;
}

static int64_t flash_pass(const struct mechanism *m, int64_t sectors)
{
    return sectors * SECTOR_BYTES * NS_PER_SECOND / m->flash_bytes_per_s;
}

/* From the end of a track to the first sector of the next one. */
static int64_t cross(const struct mechanism *m, const struct place *to, int64_t now)
{
    now += to->head == 0 ? m->seek.track_ns : m->head_switch_ns;
    return now + geometry_wait(&m->geometry, to, now);
}

int64_t mechanism_walk(const struct mechanism *m, int64_t sector, int64_t count, bool crossing,
                       int64_t start, int64_t limit, int64_t *end)
{
    const struct geometry *g = &m->geometry;
    int64_t now = start;
    int64_t passed = 0;

    *end = start;
    while (passed < count) {
        struct place at = geometry_locate(g, sector + passed);
        int64_t run = at.sectors_per_track - at.sector;
        int64_t after;

        if (run > count - passed)
            run = count - passed;
        if (crossing || passed > 0)
            now = cross(m, &at, now);
        after = now + geometry_pass(g, at.sectors_per_track, at.sector, at.sector + run);
        if (after > limit) {
            /* The limit falls within this track: the last sector that is through. */
            int64_t through = 0;

            if (limit > now)
                through = (limit - now) * at.sectors_per_track / g->revolution_ns;
            while (through < run && now + geometry_pass(g, at.sectors_per_track, at.sector,
                                                        at.sector + through + 1) <=
                                        limit)
                through++;
            while (through > 0 &&
                   now + geometry_pass(g, at.sectors_per_track, at.sector, at.sector + through) >
                       limit)
                through--;
            if (through > 0)
                *end = now + geometry_pass(g, at.sectors_per_track, at.sector, at.sector + through);
            return passed + through;
        }
        passed += run;
        now = after;
        *end = now;
    }
    return passed;
}

struct motion mechanism_plan(const struct mechanism *m, int64_t sector, int64_t count, bool write,
                             int64_t start)
{
    struct motion motion = {.sector = sector, .count = count, .write = write, .start = start};
    struct place at;
    int64_t begin;

    if (m->flash) {
        motion.transfer_ns = flash_fixed(m, write) + flash_pass(m, count);
        motion.end = start + motion.transfer_ns;
        return motion;
    }
    at = geometry_locate(&m->geometry, sector);
    if (at.cylinder != m->cylinder) {
        motion.seek_ns = seek_time(&m->seek, at.cylinder - m->cylinder);
        if (write)
            motion.seek_ns += m->write_settle_ns;
    } else if (at.head != m->head) {
        motion.seek_ns = m->head_switch_ns;
    }
    motion.rotate_ns = geometry_wait(&m->geometry, &at, start + motion.seek_ns);
    begin = start + motion.seek_ns + motion.rotate_ns;
    mechanism_walk(m, sector, count, false, begin, INT64_MAX, &motion.end);
    motion.transfer_ns = motion.end - begin;
    return motion;
}

void mechanism_move(struct mechanism *m, int64_t sector)
{
    struct place at;

    if (m->flash)
        return;
    at = geometry_locate(&m->geometry, sector);
    m->cylinder = at.cylinder;
    m->head = at.head;
}

int64_t mechanism_passed(const struct mechanism *m, const struct motion *motion, int64_t now)
{
    int64_t begin = motion->start + motion->seek_ns + motion->rotate_ns;
    int64_t end;

    if (m->flash) {
        int64_t passing = now - motion->start - flash_fixed(m, motion->write);
        int64_t passed = passing <= 0 ? 0
                                      : (int64_t)((double)passing * (double)m->flash_bytes_per_s /
                                                  (SECTOR_BYTES * (double)NS_PER_SECOND));

        return passed < motion->count ? passed : motion->count;
    }
    return mechanism_walk(m, motion->sector, motion->count, false, begin, now, &end);
}
