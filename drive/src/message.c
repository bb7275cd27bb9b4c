#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void print(const char *format, va_list arguments)
{
    char line[1024];

    /* One write a message: threads do not mix their lines. */
    vsnprintf(line, sizeof line, format, arguments);
    fprintf(stderr, "wal-drive: %s\n", line);
}

void message(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
}

void die(int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
    exit(status);
}
