/*
 * Preloaded into QEMU, as a busy host: holds the processor's thread up where it leaves the guest's
 * code, which it does for a halt, too, before the last instructions are in the clock.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* As <setjmp.h> declares them, but for the buffer, which is nothing but handed on. */
typedef void jump_function(void *buffer, int value);

void siglongjmp(void *buffer, int value) __attribute__((noreturn));
void __longjmp_chk(void *buffer, int value) __attribute__((noreturn));

static bool begun;

static bool processor(void)
{
    char name[16];

    return pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
           strcmp(name, "ALL CPUs/TCG") == 0;
}

/* What the guest's first program says first; a boot jumps ten million times. */
ssize_t writev(int file, const struct iovec *parts, int count)
{
    begun = begun || processor();
    return syscall(SYS_writev, file, parts, count);
}

static pthread_t main_loop;

static void look(int number)
{
    (void)number;
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_handler = look};

    main_loop = pthread_self();
    sigaction(SIGRTMAX, &action, NULL);
}

static void hold_up(void)
{
    if (begun && processor()) {
        /* A signal ends the main loop's wait: it looks around now. */
        pthread_kill(main_loop, SIGRTMAX);
        usleep(1000);
    }
}

void siglongjmp(void *buffer, int value)
{
    jump_function *jump = (jump_function *)dlsym(RTLD_NEXT, "siglongjmp");

    hold_up();
    jump(buffer, value);
    __builtin_unreachable();
}

void __longjmp_chk(void *buffer, int value)
{
    jump_function *jump = (jump_function *)dlsym(RTLD_NEXT, "__longjmp_chk");

    hold_up();
    jump(buffer, value);
    __builtin_unreachable();
}
