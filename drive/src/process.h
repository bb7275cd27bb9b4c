/* Process: what keeps this server prompt, and out of the way of its own users. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>

/* Once, before any thread: memory and timers. */
void process_prepare(void);

/* When everything is allocated: keep it in memory. */
void process_lock_memory(void);

/* For the calling thread; false if not permitted. */
bool process_realtime(int priority);

/* What was not permitted, for state. */
bool process_is_io_flusher(void);
bool process_is_locked(void);

#endif
