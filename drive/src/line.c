#include "line.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

struct line {
    _Atomic int64_t failed;
};

struct line *line_join(const char *path)
{
    struct line *line = MAP_FAILED;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return NULL;
    if (ftruncate(fd, sizeof *line) == 0)
        line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return line != MAP_FAILED ? line : NULL;
}

void line_leave(struct line *line)
{
    munmap(line, sizeof *line);
}

int64_t line_failed(const struct line *line)
{
    return atomic_load(&line->failed);
}

void line_fail(struct line *line, int64_t at, int64_t since)
{
    int64_t known = atomic_load(&line->failed);

    while (known <= since || known > at)
        if (atomic_compare_exchange_weak(&line->failed, &known, at))
            break;
}
