/*
 * figures [KEY=VALUE]...: what a drive with these parameters does, on the virtual
 * clock, as one JSON object: 4 kB requests at random places a second, one at a time
 * and 32 at a time, and bytes a second in sequence; the cache is on for writes.
 */
#include "rig.h"

#define DISK (INT64_C(1) << 30)
#define REQUESTS 4000

static struct rig rig;
static int64_t submitted;
static int64_t next_sector;
static uint64_t seed;
static enum request_kind kind;
static int64_t count;
static bool in_sequence;

static void submit(void)
{
    int64_t places = DISK / SECTOR_BYTES / count;
    int64_t sector =
        in_sequence ? next_sector : (int64_t)(rig_random(&seed) % (uint64_t)places) * count;

    next_sector = (sector + count) % (places * count);
    submitted++;
    rig_submit(&rig, rig_request(kind, sector, count, 1));
}

static void keep_depth(struct rig *r, struct request *done)
{
    (void)r;
    rig_release(done);
    if (submitted < REQUESTS)
        submit();
}

/* Requests a second. */
static double measure(const char *const *assignments, enum request_kind what, int64_t bytes,
                      bool sequence, int depth)
{
    double seconds;

    rig_init(&rig, DISK, what == REQUEST_WRITE, assignments);
    rig.completed = keep_depth;
    seed = 88172645463325252u;
    submitted = next_sector = 0;
    kind = what;
    count = bytes / SECTOR_BYTES;
    in_sequence = sequence;
    for (int i = 0; i < depth; i++)
        submit();
    rig_finish(&rig);
    seconds = (double)rig.now / 1e9;
    rig_free(&rig);
    return REQUESTS / seconds;
}

int main(int argc, char **argv)
{
    const char *const *assignments = (const char *const *)argv + 1;

    (void)argc;
    printf("{\"read_1\":%.1f,\"read_32\":%.1f,\"write_1\":%.1f,\"sequential_bytes\":%.0f}\n",
           measure(assignments, REQUEST_READ, 4096, false, 1),
           measure(assignments, REQUEST_READ, 4096, false, 32),
           measure(assignments, REQUEST_WRITE, 4096, false, 1),
           measure(assignments, REQUEST_READ, 131072, true, 8) * 131072);
    return 0;
}
