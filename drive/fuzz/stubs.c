#include "stubs.h"

#include "../src/line.h"
#include "../src/process.h"
#include "../src/trace.h"

#include <errno.h>
#include <stdatomic.h>

static atomic_llong ms = 1;

int stub_clock_gettime(clockid_t clock, struct timespec *now)
{
    long long at = atomic_fetch_add(&ms, 1);

    (void)clock;
    now->tv_sec = (time_t)(at / 1000);
    now->tv_nsec = (long)(at % 1000 * 1000000);
    return 0;
}

bool process_realtime(int priority)
{
    (void)priority;
    return false;
}

bool process_is_io_flusher(void)
{
    return false;
}

bool process_is_locked(void)
{
    return false;
}

/* A path is whatever the fuzzer comes up with: nothing is written, here and below. */
struct line {
    atomic_llong failed;
};

struct line *line_join(const char *path)
{
    static struct line line;

    if (path[1] == 'x') {
        errno = ENOENT;
        return NULL;
    }
    return &line;
}

void line_leave(struct line *line)
{
    (void)line;
}

int64_t line_failed(const struct line *line)
{
    return atomic_load(&line->failed);
}

void line_fail(struct line *line, int64_t at, int64_t since)
{
    (void)since;
    atomic_store(&line->failed, at);
}

struct trace *trace_open(const char *path, int64_t revolution_ns)
{
    static char open;

    if (revolution_ns <= 0)
        __builtin_trap();
    if (path[1] == 'x') {
        errno = ENOENT;
        return NULL;
    }
    return (struct trace *)(void *)&open;
}

void trace_record(struct trace *t, const struct request *r, int64_t delivered)
{
    (void)t;
    (void)r;
    (void)delivered;
}

uint64_t trace_close(struct trace *t)
{
    (void)t;
    return 0;
}
