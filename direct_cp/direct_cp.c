/*
 * direct_cp: copy a file past the page cache, as PostgreSQL's archive_command.
 *
 * The copy appears under its name whole and on the disk, or not at all: it is
 * written to a file without a name (O_TMPFILE), synced, then linked, which
 * fails where the name is taken. README.md says what is promised.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Exit codes; all below 126, which would end PostgreSQL's archiver. */
enum
{
	DONE = 0,
	DIFFERS = 1,
	USAGE = 2,
	FAILED = 3,
};

/* What O_DIRECT wants offsets, lengths and memory to be multiples of, on any
 * device with blocks of up to so many bytes. */
#define ALIGNMENT 4096
#define CHUNK ((size_t) 1 << 20)

static bool fall_back = false;

/* The file that the copy is written to where there are none without a name. */
static char hidden[NAME_MAX + 1];
static int directory = -1;

static void
remove_hidden(void)
{
	if (hidden[0])
		unlinkat(directory, hidden, 0);
}

static const char help[] =
	"NAME\n"
	"    direct_cp - copy a file past the page cache, whole or not at all\n"
	"\n"
	"SYNOPSIS\n"
	"    direct_cp [--fall-back] SOURCE DESTINATION\n"
	"    archive_command = 'direct_cp \"%p\" \"/mnt/archive/%f\"'\n"
	"\n"
	"DESCRIPTION\n"
	"    Copies SOURCE to the file DESTINATION, reading and writing with O_DIRECT, so\n"
	"    that neither takes memory from what the machine has better use for. When it\n"
	"    returns 0, the copy and its name are on the disk (fsync of file and\n"
	"    directory). Until then there is nothing under the name DESTINATION, whatever\n"
	"    happens. A DESTINATION that is there is never overwritten: if it has the same\n"
	"    content, that is success; if it has another, that is an error.\n"
	"\n"
	"OPTIONS\n"
	"    --fall-back  where the file system refuses O_DIRECT, copy through the page\n"
	"                 cache, and say so; without this it is an error\n"
	"    --help       print this\n"
	"    --version    print the version\n"
	"\n"
	"EXIT STATUS\n"
	"    0  DESTINATION has the content of SOURCE, and is on the disk\n"
	"    1  DESTINATION is there with another content, or is no regular file\n"
	"    2  wrong usage\n"
	"    3  the copy failed; nothing has appeared under the name DESTINATION, unless\n"
	"       the message says that only the sync of its directory failed\n"
	"\n"
	"NOTES\n"
	"    Where the file system has no files without a name, the copy is written to\n"
	"    .DESTINATION.direct_cp beside it, which a kill leaves behind and the next\n"
	"    direct_cp of that name removes. Do not run two for one DESTINATION at once\n"
	"    there. Needs blocks of at most 4096 bytes.\n";

__attribute__((format(printf, 1, 2), noreturn)) static void
fail(const char *format, ...)
{
	int error = errno;
	va_list arguments;

	fputs("direct_cp: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", strerror(error));
	exit(FAILED);
}

/* Open with O_DIRECT, or without if that is refused and allowed. */
static int
open_direct(int in, const char *path, int flags, mode_t mode)
{
	int file = openat(in, path, flags | O_DIRECT | O_CLOEXEC, mode);

	if (file >= 0 || errno != EINVAL)
		return file;
	if (!fall_back)
	{
		fprintf(stderr,
				"direct_cp: %s: the file system refuses O_DIRECT; --fall-back would copy "
				"through the page cache\n",
				path);
		exit(FAILED);
	}
	fprintf(stderr,
			"direct_cp: %s: the file system refuses O_DIRECT; going through the page cache\n",
			path);
	return openat(in, path, flags | O_CLOEXEC, mode);
}

static size_t
aligned(size_t size)
{
	return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static char *
buffer(void)
{
	void *memory;

	if ((errno = posix_memalign(&memory, ALIGNMENT, CHUNK)) != 0)
		fail("memory");
	return memory;
}

/* Read the chunk at the offset; less than asked for only at the end of the file. */
static size_t
read_chunk(int file, char *into, off_t offset, const char *name)
{
	size_t have = 0;

	while (have < CHUNK)
	{
		/* A read that ended between two blocks goes on from the last whole one. */
		size_t whole = have / ALIGNMENT * ALIGNMENT;
		ssize_t got = pread(file, into + whole, CHUNK - whole, offset + (off_t) whole);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			fail("%s: read", name);
		if (whole + (size_t) got <= have)
			break;
		have = whole + (size_t) got;
	}
	return have;
}

/* Write the chunk, whose length is a multiple of the alignment. */
static bool
write_chunk(int file, const char *from, size_t size, off_t offset)
{
	while (size > 0)
	{
		ssize_t put = pwrite(file, from, size, offset);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return false;
		/* As with reads: only whole blocks count. */
		put = put / ALIGNMENT * ALIGNMENT;
		if (put == 0)
		{
			errno = ENOSPC;
			return false;
		}
		from += put;
		size -= (size_t) put;
		offset += put;
	}
	return true;
}

/* Copy all of the source to the open file; false with errno if writing fails. */
static bool
copy(int source, const char *name, int target, off_t expected)
{
	char *chunk = buffer();
	off_t offset = 0;
	bool good = true;

	for (;;)
	{
		size_t size = read_chunk(source, chunk, offset, name);

		memset(chunk + size, 0, aligned(size) - size);
		good = write_chunk(target, chunk, aligned(size), offset);
		if (!good)
			break;
		offset += (off_t) size;
		if (size < CHUNK)
			break;
	}
	free(chunk);
	if (!good)
		return false;
	if (offset != expected)
	{
		fprintf(stderr, "direct_cp: %s: changed while it was copied\n", name);
		exit(FAILED);
	}
	return ftruncate(target, offset) == 0;
}

static bool
same_content(int first, const char *first_name, int second, const char *second_name)
{
	char *chunk = buffer();
	char *beside = buffer();
	off_t offset = 0;
	bool same;
	size_t size;

	do
	{
		size = read_chunk(first, chunk, offset, first_name);
		same = read_chunk(second, beside, offset, second_name) == size &&
			   memcmp(chunk, beside, size) == 0;
		offset += (off_t) size;
	} while (same && size == CHUNK);
	free(chunk);
	free(beside);
	return same;
}

static void
sync_directory(const char *path)
{
	if (fsync(directory) != 0)
		fail("%s is there, but its directory could not be synced", path);
}

/* The name is taken: exit with what that means. */
__attribute__((noreturn)) static void
compare(int source, const char *source_name, const char *name, const char *path)
{
	struct stat status;
	int there;

	if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
		fail("%s", path);
	if (!S_ISREG(status.st_mode))
	{
		fprintf(stderr, "direct_cp: %s: is there, and no regular file\n", path);
		exit(DIFFERS);
	}
	if ((there = open_direct(directory, name, O_RDONLY | O_NOFOLLOW, 0)) < 0)
		fail("%s", path);
	if (!same_content(source, source_name, there, path))
	{
		fprintf(stderr, "direct_cp: %s: is there with another content; not overwritten\n", path);
		exit(DIFFERS);
	}
	/* What is left of an attempt that was killed when it had linked its copy. */
	if (snprintf(hidden, sizeof hidden, ".%s.direct_cp", name) >= (int) sizeof hidden)
		hidden[0] = '\0';
	remove_hidden();
	hidden[0] = '\0';
	/* Whoever wrote it may not have synced it. */
	if (fsync(there) != 0)
		fail("%s: fsync", path);
	sync_directory(path);
	exit(DONE);
}

/* Give the nameless file its name; false with errno, EEXIST if that is taken. */
static bool
link_nameless(int file, const char *name)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	return linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW) == 0;
}

/* Rename without replacing, also where there are no hard links. */
static bool
move_hidden(const char *name)
{
	if (linkat(directory, hidden, directory, name, 0) == 0)
		return true;
	if (errno != EPERM && errno != EOPNOTSUPP)
		return false;
	if (renameat2(directory, hidden, directory, name, RENAME_NOREPLACE) != 0)
		return false;
	hidden[0] = '\0';
	return true;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"fall-back", no_argument, NULL, 'f'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	const char *source_name, *path, *name;
	char *in_directory, *in_name;
	int source, target, option;
	struct stat status;
	bool good;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option)
		{
			case 'f':
				fall_back = true;
				break;
			case 'h':
				return fputs(help, stdout) < 0 || fflush(stdout) != 0 ? FAILED : DONE;
			case 'V':
				return puts("direct_cp 1.0") < 0 || fflush(stdout) != 0 ? FAILED : DONE;
			default:
				fputs("Try: direct_cp --help\n", stderr);
				return USAGE;
		}
	if (argc - optind != 2)
	{
		fputs("direct_cp: expected SOURCE and DESTINATION\nTry: direct_cp --help\n", stderr);
		return USAGE;
	}
	source_name = argv[optind];
	path = argv[optind + 1];
	if ((in_directory = strdup(path)) == NULL || (in_name = strdup(path)) == NULL)
		fail("memory");
	name = basename(in_name);
	if (path[0] == '\0' || path[strlen(path) - 1] == '/' || strcmp(name, ".") == 0 ||
		strcmp(name, "..") == 0)
	{
		fprintf(stderr, "direct_cp: %s: expected the name of a file, not of a directory\n", path);
		return USAGE;
	}

	if ((source = open_direct(AT_FDCWD, source_name, O_RDONLY, 0)) < 0 ||
		fstat(source, &status) != 0)
		fail("%s", source_name);
	if (!S_ISREG(status.st_mode))
	{
		fprintf(stderr, "direct_cp: %s: no regular file\n", source_name);
		return FAILED;
	}
	if ((directory = open(dirname(in_directory), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		fail("%s", in_directory);
	if (faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		compare(source, source_name, name, path);
	if (errno != ENOENT)
		fail("%s", path);

	target = open_direct(directory, ".", O_TMPFILE | O_WRONLY, status.st_mode & 0777);
	if (target < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
	{
		/* No files without a name here. */
		if (atexit(remove_hidden) != 0 ||
			snprintf(hidden, sizeof hidden, ".%s.direct_cp", name) >= (int) sizeof hidden)
		{
			hidden[0] = '\0';
			errno = ENAMETOOLONG;
			fail("%s", path);
		}
		if (unlinkat(directory, hidden, 0) != 0 && errno != ENOENT)
			fail("%s: cannot remove what is left of an earlier copy", hidden);
		target = open_direct(directory, hidden, O_CREAT | O_EXCL | O_WRONLY, status.st_mode & 0777);
	}
	if (target < 0)
		fail("%s: cannot create", path);

	good = copy(source, source_name, target, status.st_size) && fsync(target) == 0;
	if (good)
		good = hidden[0] ? move_hidden(name) : link_nameless(target, name);
	if (!good)
	{
		/* Somebody else was faster. */
		if (errno == EEXIST)
			compare(source, source_name, name, path);
		fail("%s", path);
	}
	sync_directory(path);
	return DONE;
}
