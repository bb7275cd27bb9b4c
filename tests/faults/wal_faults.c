/*
 * Faults of writes to WAL segments, for LD_PRELOAD: what pwrite(2) and pwritev(2) may return,
 * and hardly ever do.
 *
 * WALLAB_FAULTS names a folder. While there is a file "mode" in it, its first word chooses:
 *
 *   boundary     every other write ends early, after 1, 2, 3 ... units, so at each of them in turn
 *   iovec        a write of two buffers ends where the first does
 *   iovec-less   or a unit before that
 *   iovec-more   or a unit after that
 *   interrupted  every other write fails with EINTR
 *   full         a write ends half-way; the next one, and all after that, fail with ENOSPC
 *   refuse       a write with O_DIRECT fails with EINVAL, as where a file system has none
 *
 * A unit is 512 bytes, or with O_DIRECT the second word of the file: the kernel cuts direct writes
 * at the device's logical blocks only. Each fault adds a line to the file "faults": mode, buffers
 * and bytes of the call, what it returned, and errno.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PLENTY 4096

typedef ssize_t (*Pwritev)(int, const struct iovec *, int, off_t);

/* A write that is asked for. */
struct request
{
	int fd;
	const struct iovec *iov;
	int count;
	off_t offset;
	size_t size;
};

static char mode[32];
static size_t direct_unit;

/* Read which mode is on; false if none is. */
static bool
read_mode(const char *folder)
{
	char path[PLENTY];
	char text[64];

	snprintf(path, sizeof path, "%s/mode", folder);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t size = read(fd, text, sizeof text - 1);
	close(fd);
	if (size <= 0)
		return false;
	text[size] = 0;
	return sscanf(text, "%31s %zu", mode, &direct_unit) == 2;
}

/* Is the descriptor that of a file in pg_wal, a segment or one that becomes none? */
static bool
is_wal(int fd, bool *segment)
{
	char link[64];
	char path[PLENTY];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t size = readlink(link, path, sizeof path - 1);
	if (size < 0)
		return false;
	path[size] = 0;
	const char *name = strrchr(path, '/');
	if (name == NULL || strstr(path, "/xlogtemp") == NULL)
	{
		*segment =
			name != NULL && strlen(name + 1) == 24 && strspn(name + 1, "0123456789ABCDEF") == 24;
		return *segment;
	}
	*segment = false;
	return true;
}

static void
tell(const char *folder, const struct request *asked, ssize_t result, int error)
{
	char path[PLENTY];
	char line[128];

	snprintf(path, sizeof path, "%s/faults", folder);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	int size = snprintf(line, sizeof line, "%s %d %zu %zd %d\n", mode, asked->count, asked->size,
						result, error);
	if (write(fd, line, size) != size)
		abort();
	close(fd);
}

static ssize_t
whole(const struct request *asked)
{
	static Pwritev next;

	if (next == NULL)
		next = (Pwritev) dlsym(RTLD_NEXT, "pwritev64");
	return next(asked->fd, asked->iov, asked->count, asked->offset);
}

/* Write no more than the first bytes of what was asked for. */
static ssize_t
part(const struct request *asked, size_t size)
{
	struct iovec iov[2];
	struct request less = *asked;

	memcpy(iov, asked->iov, asked->count * sizeof *iov);
	less.iov = iov;
	if (size <= iov[0].iov_len)
	{
		iov[0].iov_len = size;
		less.count = 1;
	}
	else
	{
		iov[1].iov_len = size - iov[0].iov_len;
	}
	return whole(&less);
}

/* How many bytes of the write succeed in this mode: its size if all do, or -errno. */
static ssize_t
outcome(const struct request *asked, size_t unit, bool direct, bool segment)
{
	static unsigned calls;
	static unsigned cuts;
	static unsigned fills;
	size_t units = asked->size / unit;

	if (strcmp(mode, "refuse") == 0)
		return direct ? -EINVAL : (ssize_t) asked->size;
	if (!segment)
		return asked->size;
	if (strcmp(mode, "interrupted") == 0)
		return ++calls % 2 ? -EINTR : (ssize_t) asked->size;
	if (strcmp(mode, "full") == 0)
		return ++fills == 1 && units > 1 ? (ssize_t) (units / 2 * unit) : -ENOSPC;
	if (units < 2)
		return asked->size;
	if (strcmp(mode, "boundary") == 0)
		return ++calls % 2 ? (ssize_t) ((1 + cuts++ % (units - 1)) * unit) : (ssize_t) asked->size;
	if (asked->count == 2 && strcmp(mode, "iovec") == 0)
		return asked->iov[0].iov_len;
	if (asked->count == 2 && asked->iov[0].iov_len > unit && strcmp(mode, "iovec-less") == 0)
		return asked->iov[0].iov_len - unit;
	if (asked->count == 2 && strcmp(mode, "iovec-more") == 0)
		return asked->iov[0].iov_len + unit;
	return asked->size;
}

static ssize_t
faulty(int fd, const struct iovec *iov, int count, off_t offset)
{
	struct request asked = {.fd = fd, .iov = iov, .count = count, .offset = offset};
	const char *folder = getenv("WALLAB_FAULTS");
	bool segment;

	for (int i = 0; i < count; i++)
		asked.size += iov[i].iov_len;
	int saved = errno;
	if (folder == NULL || count > 2 || !read_mode(folder) || !is_wal(fd, &segment))
	{
		errno = saved;
		return whole(&asked);
	}
	bool direct = fcntl(fd, F_GETFL) & O_DIRECT;
	ssize_t size = outcome(&asked, direct ? direct_unit : 512, direct, segment);
	errno = saved;
	if (size == (ssize_t) asked.size)
		return whole(&asked);
	ssize_t result = size < 0 ? -1 : part(&asked, size);
	int error = size < 0 ? (int) -size : result < 0 ? errno : 0;
	tell(folder, &asked, result, error);
	errno = error ? error : saved;
	return result;
}

ssize_t
pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
	return faulty(fd, iov, count, offset);
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
	return faulty(fd, iov, count, offset);
}

ssize_t
pwrite(int fd, const void *data, size_t size, off_t offset)
{
	struct iovec iov = {.iov_base = (void *) data, .iov_len = size};

	return faulty(fd, &iov, 1, offset);
}

ssize_t
pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
	return pwrite(fd, data, size, offset);
}
