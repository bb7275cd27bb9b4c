/* Stubs: what a drive that is fuzzed has instead of time, files and rights. */
#ifndef STUBS_H
#define STUBS_H

#include <time.h>

/*
 * Every look at the clock takes 1 ms, so that nothing takes real time. It is far behind the real
 * one: who waits for a moment of it does not wait.
 */
int stub_clock_gettime(clockid_t clock, struct timespec *now);

#endif
