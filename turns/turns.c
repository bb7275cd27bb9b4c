/*
 * turns: preloaded into QEMU, lets its main loop and its processor take turns.
 *
 * Where time is counted in instructions (-icount sleep=off), QEMU's main loop
 * moves the clock to the next timer once the processor is idle. It may look for
 * that just between the processor's halt and the account of its last
 * instructions, and then starts from a clock that lacks these: the timer comes
 * some nanoseconds late, more often the busier the host is.
 *
 * The main loop needs QEMU's global lock for what it does. Here it gets that
 * lock only while the processor's thread waits for something to do, which it
 * does with the lock released, and which it cannot end without it. Timers that
 * come due while the processor works are run by its own thread, but for a few
 * that only the main loop can run: until it has, the processor stands still, and
 * its thread hands the turn over. What the main loop does then follows from the
 * guest alone.
 *
 * The processor's thread is known by the name that QEMU gives it where it is
 * told to (-name guest,debug-threads=on). Once turns are taken, the process is
 * called "qemu in turns".
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROCESSOR "ALL CPUs/TCG"
#define IN_TURNS "qemu in turns"

typedef int lock_function(pthread_mutex_t *);
typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);
typedef int name_function(pthread_t, const char *);
/* QEMU's own: ns until the next timer of a clock, -1 if there is none (include/qemu/timer.h). */
typedef int64_t deadline_function(int clock, int attributes);
/* It wakes the main loop (include/qemu/main-loop.h). */
typedef void notify_function(void);

#define QEMU_CLOCK_REALTIME 0
#define QEMU_CLOCK_VIRTUAL 1
#define ALL_TIMERS (-1)

/*
 * So often in a row the processor's thread leaves the global lock with a timer due, and has tried
 * to run all that it can meanwhile: once in a device, where its own try is still to come, and twice
 * in each round of its loop.
 */
#define STALLED 4

static lock_function *real_lock;
static wait_function *real_wait;
static name_function *real_name;
static lock_function *real_unlock;
static deadline_function *deadline;
static notify_function *notify;

static pthread_t main_thread;
static __thread bool is_main;
static __thread bool is_processor;

/* QEMU's global lock: what the processor's thread waits with, from its first wait on. */
static pthread_mutex_t *_Atomic global_lock;
/* 1 while the processor's thread waits; a futex. It becomes 0 with the global lock held only. */
static _Atomic unsigned int idle;
/* How often the main loop has had the global lock and left it; a futex. */
static _Atomic unsigned int passes;

static const char *const unversioned[] = {NULL};

static void *find(const char *name, const char *const versions[])
{
    void *function = NULL;

    /* Without a version the one of 2.2.5 may be found, whose conditions are of another size. */
    for (; function == NULL && *versions != NULL; versions++)
        function = dlvsym(RTLD_NEXT, name, *versions);
    if (function == NULL)
        function = dlsym(RTLD_NEXT, name);
    if (function == NULL)
        function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL) {
        fprintf(stderr, "turns: there is no %s\n", name);
        abort();
    }
    return function;
}

__attribute__((constructor)) static void begin(void)
{
    static const char *const waits[] = {"GLIBC_2.3.2", NULL};

    if (real_lock != NULL)
        return;
    real_lock = find("pthread_mutex_lock", unversioned);
    real_wait = find("pthread_cond_wait", waits);
    real_name = find("pthread_setname_np", unversioned);
    real_unlock = find("pthread_mutex_unlock", unversioned);
    main_thread = pthread_self();
    is_main = true;
}

static void await_other(_Atomic unsigned int *word, unsigned int than)
{
    while (atomic_load(word) == than)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, than, NULL, NULL, 0);
}

static void wake(_Atomic unsigned int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void passed(void)
{
    atomic_fetch_add(&passes, 1);
    wake(&passes);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    int error;

    if (real_lock == NULL)
        begin();
    for (;;) {
        error = real_lock(mutex);
        if (!is_main || mutex != atomic_load(&global_lock) || error != 0 || atomic_load(&idle))
            return error;
        real_unlock(mutex);
        await_other(&idle, 0);
    }
}

/* With the global lock held by the processor's thread. */
static bool stalled(void)
{
    static int guests, hosts;

    guests = deadline(QEMU_CLOCK_VIRTUAL, ALL_TIMERS) == 0 ? guests + 1 : 0;
    /* The processor waits for timers of the host's time, too, though they do nothing to the guest.
     */
    hosts = deadline(QEMU_CLOCK_REALTIME, ALL_TIMERS) == 0 ? hosts + 1 : 0;
    return guests >= STALLED || hosts >= STALLED;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    unsigned int before;
    int error;

    if (real_unlock == NULL)
        begin();
    if ((!is_main && !is_processor) || mutex != atomic_load(&global_lock))
        return real_unlock(mutex);
    if (is_main) {
        error = real_unlock(mutex);
        passed();
        return error;
    }
    if (!stalled())
        return real_unlock(mutex);
    before = atomic_load(&passes);
    /* Nobody wakes it for a timer of the guest's time: the processor's thread runs these. */
    notify();
    atomic_store(&idle, 1);
    wake(&idle);
    real_unlock(mutex);
    await_other(&passes, before);
    real_lock(mutex);
    atomic_store(&idle, 0);
    return real_unlock(mutex);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    pthread_mutex_t *none = NULL;
    int error;

    if (real_wait == NULL)
        begin();
    if (is_main && mutex == atomic_load(&global_lock))
        passed();
    if (!is_processor)
        return real_wait(condition, mutex);
    if (deadline == NULL) {
        deadline = (deadline_function *)find("qemu_clock_deadline_ns_all", unversioned);
        notify = (notify_function *)find("qemu_notify_event", unversioned);
    }
    if (atomic_compare_exchange_strong(&global_lock, &none, mutex))
        real_name(main_thread, IN_TURNS);
    if (mutex != atomic_load(&global_lock))
        return real_wait(condition, mutex);
    atomic_store(&idle, 1);
    wake(&idle);
    error = real_wait(condition, mutex);
    atomic_store(&idle, 0);
    return error;
}

int pthread_setname_np(pthread_t thread, const char *name)
{
    if (real_name == NULL)
        begin();
    if (pthread_equal(thread, pthread_self()) && strcmp(name, PROCESSOR) == 0)
        is_processor = true;
    return real_name(thread, name);
}
