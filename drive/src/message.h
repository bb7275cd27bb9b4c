/* Messages on standard error. */
#ifndef MESSAGE_H
#define MESSAGE_H

enum { EXIT_USAGE = 2, EXIT_MACHINE = 3 };

/* "wal-drive: ..." and a newline. */
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, and exit. */
_Noreturn void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
