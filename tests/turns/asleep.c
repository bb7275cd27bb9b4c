/*
 * asleep: as QEMU does, a main loop sleeps until it is woken, and a processor's thread finds a
 * timer due that it has tried to run in vain. It prints how often the main loop had its turn.
 */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TURNS 3

int64_t qemu_clock_deadline_ns_all(int clock, int attributes);
void qemu_notify_event(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int event;
static int started, due, turns;

int64_t qemu_clock_deadline_ns_all(int clock, int attributes)
{
    return clock == 1 && attributes == -1 && due ? 0 : -1;
}

void qemu_notify_event(void)
{
    eventfd_write(event, 1);
}

static void *processor(void *unused)
{
    pthread_setname_np(pthread_self(), "ALL CPUs/TCG");
    pthread_mutex_lock(&lock);
    while (!started)
        pthread_cond_wait(&work, &lock);
    while (turns < TURNS) {
        due = 1;
        pthread_mutex_unlock(&lock);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    qemu_notify_event();
    return unused;
}

int main(void)
{
    struct pollfd descriptor = {.events = POLLIN};
    pthread_t thread;
    eventfd_t count;

    event = descriptor.fd = eventfd(0, 0);
    pthread_create(&thread, NULL, processor, NULL);
    usleep(100000); /* it waits */
    pthread_mutex_lock(&lock);
    started = 1;
    pthread_cond_signal(&work);
    while (turns < TURNS) {
        pthread_mutex_unlock(&lock);
        poll(&descriptor, 1, -1);
        eventfd_read(event, &count);
        pthread_mutex_lock(&lock);
        due = 0;
        turns++;
    }
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    printf("%d\n", turns);
    return 0;
}
