#include "process.h"

#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

static bool io_flusher;
static bool locked;

void process_prepare(void)
{
    /*
     * When memory is short the kernel writes dirty pages back, perhaps to this
     * very drive. An I/O flusher's own allocations never wait for that.
     */
    io_flusher = prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0;
    /* Threads inherit it. The default would let every timer be 50 us late. */
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    /* Buffers of requests come and go; faulting their pages in each time is slow. */
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_ARENA_MAX, 1);
}

void process_lock_memory(void)
{
    /* Only what is touched: the content is as large as the disk and mostly empty. */
    locked = mlockall(MCL_CURRENT | MCL_ONFAULT) == 0;
}

bool process_realtime(int priority)
{
    struct sched_param param = {.sched_priority = priority};

    return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0;
}

bool process_is_io_flusher(void)
{
    return io_flusher;
}

bool process_is_locked(void)
{
    return locked;
}
