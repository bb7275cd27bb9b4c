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
 * come due while the processor works are run by its own thread, so nothing waits
 * for the main loop meanwhile. What that does then follows from the guest alone.
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

static lock_function *real_lock;
static wait_function *real_wait;
static name_function *real_name;

static pthread_t main_thread;
static __thread bool is_main;
static __thread bool is_processor;

/* QEMU's global lock: what the processor's thread waits with, from its first wait on. */
static pthread_mutex_t *_Atomic global_lock;
/* 1 while the processor's thread waits; a futex. It becomes 0 with the global lock held only. */
static _Atomic unsigned int idle;

static void *find(const char *name, const char *const versions[])
{
    void *function = NULL;

    /* Without a version the one of 2.2.5 may be found, whose conditions are of another size. */
    for (; function == NULL && *versions != NULL; versions++)
        function = dlvsym(RTLD_NEXT, name, *versions);
    if (function == NULL)
        function = dlsym(RTLD_NEXT, name);
    if (function == NULL) {
        fprintf(stderr, "turns: the C library has no %s\n", name);
        abort();
    }
    return function;
}

__attribute__((constructor)) static void begin(void)
{
    static const char *const any[] = {NULL};
    static const char *const waits[] = {"GLIBC_2.3.2", NULL};

    if (real_lock != NULL)
        return;
    real_lock = find("pthread_mutex_lock", any);
    real_wait = find("pthread_cond_wait", waits);
    real_name = find("pthread_setname_np", any);
    main_thread = pthread_self();
    is_main = true;
}

static void await_idle(void)
{
    while (!atomic_load(&idle))
        syscall(SYS_futex, &idle, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
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
        pthread_mutex_unlock(mutex);
        await_idle();
    }
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    pthread_mutex_t *none = NULL;
    int error;

    if (real_wait == NULL)
        begin();
    if (!is_processor)
        return real_wait(condition, mutex);
    if (atomic_compare_exchange_strong(&global_lock, &none, mutex))
        real_name(main_thread, IN_TURNS);
    if (mutex != atomic_load(&global_lock))
        return real_wait(condition, mutex);
    atomic_store(&idle, 1);
    syscall(SYS_futex, &idle, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
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
