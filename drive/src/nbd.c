/*
 * The drive as an nbdkit plugin, for virtual machines and nbd clients: here FUA and
 * FLUSH arrive as they were sent.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "control.h"
#include "drive.h"

#include <errno.h>
#include <semaphore.h>
#include <string.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static struct drive drive;
static struct params params;
static const char *control;
static int64_t size;
static enum write_cache write_cache;
static bool timing = true;

static void load(void)
{
    params_default(&params);
}

static int config(const char *key, const char *value)
{
    char assignment[2048];
    char error[512];

    if (strcmp(key, "control") == 0) {
        control = nbdkit_absolute_path(value);
        return control == NULL ? -1 : 0;
    }
    if (strcmp(key, "size") == 0) {
        size = nbdkit_parse_size(value);
        return size < 0 ? -1 : 0;
    }
    if (strcmp(key, "write-cache") == 0) {
        if (write_cache_named(value, &write_cache))
            return 0;
        nbdkit_error("write-cache: expected " WRITE_CACHE_NAMES ", not \"%s\"", value);
        return -1;
    }
    if (strcmp(key, "timing") == 0) {
        int on = nbdkit_parse_bool(value);

        timing = on == 1;
        return on < 0 ? -1 : 0;
    }
    if ((size_t)snprintf(assignment, sizeof assignment, "%s=%s", key, value) >= sizeof assignment) {
        nbdkit_error("%s: too long", key);
        return -1;
    }
    if (params_set(&params, assignment, error, sizeof error))
        return 0;
    nbdkit_error("%s", error);
    return -1;
}

static int config_complete(void)
{
    char error[512];

    if (control == NULL || size == 0) {
        nbdkit_error("control=SOCKET and size=SIZE are needed");
        return -1;
    }
    if (!params_check(&params, error, sizeof error)) {
        nbdkit_error("%s", error);
        return -1;
    }
    if (size % IMAGE_PAGE != 0 || size / SECTOR_BYTES > model_capacity(&params)) {
        nbdkit_error("size: a multiple of %d, at most the %lld bytes of the drive", IMAGE_PAGE,
                     (long long)model_capacity(&params) * SECTOR_BYTES);
        return -1;
    }
    return 0;
}

static int get_ready(void)
{
    if (!drive_init(&drive, &params, size)) {
        nbdkit_error("not enough memory for a disk of %lld bytes", (long long)size);
        return -1;
    }
    model_set_write_cache(&drive.model, write_cache);
    model_set_timing(&drive.model, timing);
    control_listen(control);
    return 0;
}

static void quit(void)
{
    nbdkit_shutdown();
}

/* Threads do not survive the fork into the background. */
static int after_fork(void)
{
    if (drive_start(&drive) && control_start(&drive, quit))
        return 0;
    nbdkit_error("cannot start threads: %s", strerror(errno));
    return -1;
}

static void cleanup(void)
{
    control_stop();
    drive_stop(&drive);
}

static void *open_disk(int readonly)
{
    (void)readonly;
    return &drive;
}

static int64_t get_size(void *handle)
{
    (void)handle;
    return size;
}

static int block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
    (void)handle;
    *minimum = SECTOR_BYTES;
    *preferred = IMAGE_PAGE;
    *maximum = 32 << 20;
    return 0;
}

static int yes(void *handle)
{
    (void)handle;
    return 1;
}

static int can_fua(void *handle)
{
    (void)handle;
    return NBDKIT_FUA_NATIVE;
}

/* A request whose thread waits for it. */
struct waiting {
    struct operation operation;
    sem_t done;
    int error;
};

static void deliver(struct operation *o)
{
    struct waiting *w = (struct waiting *)(void *)o;

    w->error = o->request.error;
    sem_post(&w->done);
}

static int serve(enum request_kind kind, void *data, uint32_t count, uint64_t offset, bool fua)
{
    struct waiting w = {.operation = {.request = {.kind = kind,
                                                  .sector = (int64_t)offset / SECTOR_BYTES,
                                                  .count = count / SECTOR_BYTES,
                                                  .fua = fua,
                                                  .data = data},
                                      .deliver = deliver}};

    if (count % SECTOR_BYTES != 0 || offset % SECTOR_BYTES != 0) {
        nbdkit_error("a request for part of a sector");
        nbdkit_set_error(EINVAL);
        return -1;
    }
    sem_init(&w.done, 0, 0);
    drive_submit(&drive, &w.operation);
    while (sem_wait(&w.done) != 0 && errno == EINTR)
        ;
    sem_destroy(&w.done);
    if (w.error == 0)
        return 0;
    nbdkit_set_error(w.error);
    return -1;
}

static int read_disk(void *handle, void *data, uint32_t count, uint64_t offset, uint32_t flags)
{
    (void)handle;
    (void)flags;
    return serve(REQUEST_READ, data, count, offset, false);
}

static int write_disk(void *handle, const void *data, uint32_t count, uint64_t offset,
                      uint32_t flags)
{
    (void)handle;
    return serve(REQUEST_WRITE, (void *)(uintptr_t)data, count, offset,
                 (flags & NBDKIT_FLAG_FUA) != 0);
}

static int flush_disk(void *handle, uint32_t flags)
{
    (void)handle;
    (void)flags;
    return serve(REQUEST_FLUSH, NULL, 0, 0, false);
}

static struct nbdkit_plugin plugin = {
    .name = "waldrive",
    .longname = "simulated disk drive",
    .load = load,
    .config = config,
    .config_complete = config_complete,
    .config_help = "control=SOCKET         (required) unix socket for commands\n"
                   "size=SIZE              (required) of the disk\n"
                   "write-cache=off|on|battery\n"
                   "timing=on|off\n"
                   "KEY=VALUE              a parameter (wal-drive --list-parameters)",
    .get_ready = get_ready,
    .after_fork = after_fork,
    .cleanup = cleanup,
    .open = open_disk,
    .get_size = get_size,
    .block_size = block_size,
    .can_flush = yes,
    .can_fua = can_fua,
    .can_multi_conn = yes,
    .pread = read_disk,
    .pwrite = write_disk,
    .flush = flush_disk,
};

NBDKIT_REGISTER_PLUGIN(plugin)
