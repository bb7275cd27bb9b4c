#include "fuse.h"

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DISK_INODE 2
#define DISK_NAME "disk"
#define FOREVER 86400.0
#define BACKGROUND 64 /* requests the kernel keeps under way; its default is 12 */

/* One request under way, with its bytes behind it. */
struct transfer {
    struct operation operation;
    fuse_req_t reply;
    int64_t bytes;
    unsigned char data[];
};

static struct drive *drive;
static struct fuse_session *session;

static void attributes(fuse_ino_t inode, struct stat *st)
{
    memset(st, 0, sizeof *st);
    st->st_ino = inode;
    st->st_uid = getuid();
    st->st_gid = getgid();
    st->st_blksize = IMAGE_PAGE;
    if (inode == DISK_INODE) {
        st->st_mode = S_IFREG | 0600;
        st->st_nlink = 1;
        st->st_size = drive->size;
        st->st_blocks = drive->size / 512;
    } else {
        st->st_mode = S_IFDIR | 0700;
        st->st_nlink = 2;
    }
}

static void on_init(void *user, struct fuse_conn_info *connection)
{
    (void)user;
    connection->max_background = BACKGROUND;
    connection->congestion_threshold = BACKGROUND;
    /* Mounted, the kernel has answered, and the control socket listened before. */
    puts("ready");
    fflush(stdout);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {
        .ino = DISK_INODE, .generation = 1, .attr_timeout = FOREVER, .entry_timeout = FOREVER};

    if (parent != FUSE_ROOT_ID || strcmp(name, DISK_NAME) != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    attributes(DISK_INODE, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *fi)
{
    struct stat st;

    (void)fi;
    attributes(inode, &st);
    fuse_reply_attr(req, &st, FOREVER);
}

/* Times and modes may be "set"; the size of a drive may not. */
static void on_setattr(fuse_req_t req, fuse_ino_t inode, struct stat *st, int which,
                       struct fuse_file_info *fi)
{
    if ((which & FUSE_SET_ATTR_SIZE) && st->st_size != drive->size) {
        fuse_reply_err(req, EPERM);
        return;
    }
    on_getattr(req, inode, fi);
}

static void on_readdir(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    static const char *const names[] = {".", "..", DISK_NAME};
    char buffer[256];
    size_t used = 0;

    (void)fi;
    if (inode != FUSE_ROOT_ID) {
        fuse_reply_err(req, ENOTDIR);
        return;
    }
    for (off_t i = offset; i < 3; i++) {
        struct stat st;
        size_t entry;

        attributes(i == 2 ? DISK_INODE : FUSE_ROOT_ID, &st);
        entry = fuse_add_direntry(req, buffer + used, sizeof buffer - used, names[i], &st, i + 1);
        if (used + entry > size || used + entry > sizeof buffer)
            break;
        used += entry;
    }
    fuse_reply_buf(req, buffer, used);
}

static void on_open(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *fi)
{
    /*
     * Nothing between the drive and its user may hold, merge or order anything;
     * closing a file is not FLUSH. The answer is made by hand because libfuse
     * before 3.15 does not know parallel direct writes.
     */
    struct fuse_open_out out = {
        .open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES | FOPEN_NOFLUSH,
    };

    (void)fi;
    if (inode != DISK_INODE)
        fuse_reply_err(req, EISDIR);
    else
        fuse_reply_buf(req, (const char *)&out, sizeof out);
}

/* Whole sectors within the drive; otherwise the request has been answered. */
static bool in_range(fuse_req_t req, int64_t offset, int64_t size)
{
    if (offset % SECTOR_BYTES != 0 || size % SECTOR_BYTES != 0) {
        fuse_reply_err(req, EINVAL);
        return false;
    }
    if (offset + size > drive->size) {
        fuse_reply_err(req, ENOSPC);
        return false;
    }
    return true;
}

static void deliver(struct operation *o)
{
    struct transfer *t = (struct transfer *)o;

    if (o->request.error != 0)
        fuse_reply_err(t->reply, o->request.error);
    else if (o->request.kind == REQUEST_READ)
        fuse_reply_buf(t->reply, (const char *)t->data, (size_t)t->bytes);
    else if (o->request.kind == REQUEST_WRITE)
        fuse_reply_write(t->reply, (size_t)t->bytes);
    else
        fuse_reply_err(t->reply, 0);
}

static void release(struct operation *o)
{
    free(o);
}

static struct transfer *begin(fuse_req_t req, enum request_kind kind, int64_t offset, int64_t size)
{
    struct transfer *t = malloc(sizeof *t + (size_t)size);

    if (t == NULL) {
        fuse_reply_err(req, ENOMEM);
        return NULL;
    }
    t->operation = (struct operation){
        .request = {.kind = kind,
                    .sector = offset / SECTOR_BYTES,
                    .count = size / SECTOR_BYTES,
                    .data = t->data,
                    .lasting = true},
        .deliver = deliver,
        .release = release,
    };
    t->reply = req;
    t->bytes = size;
    return t;
}

static void reply_pieces(void *context, struct iovec *pieces, int count)
{
    fuse_reply_iov(context, pieces, count);
}

static void on_read(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    struct transfer *t;

    (void)inode;
    (void)fi;
    if (offset >= drive->size)
        size = 0;
    else if ((int64_t)size > drive->size - offset)
        size = (size_t)(drive->size - offset);
    if (size == 0) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    if (!in_range(req, offset, (int64_t)size) ||
        drive_read_untimed(drive, offset / SECTOR_BYTES, (int64_t)size / SECTOR_BYTES, reply_pieces,
                           req))
        return;
    t = begin(req, REQUEST_READ, offset, (int64_t)size);
    if (t != NULL)
        drive_submit(drive, &t->operation);
}

static void on_write(fuse_req_t req, fuse_ino_t inode, const char *from, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    struct transfer *t;

    (void)inode;
    (void)fi;
    if (!in_range(req, offset, (int64_t)size))
        return;
    if (size == 0 ||
        drive_write_untimed(drive, offset / SECTOR_BYTES, (int64_t)size / SECTOR_BYTES, from)) {
        fuse_reply_write(req, size);
        return;
    }
    t = begin(req, REQUEST_WRITE, offset, (int64_t)size);
    if (t == NULL)
        return;
    memcpy(t->data, from, size);
    drive_submit(drive, &t->operation);
}

static void on_fsync(fuse_req_t req, fuse_ino_t inode, int datasync, struct fuse_file_info *fi)
{
    struct transfer *t;

    (void)inode;
    (void)datasync;
    (void)fi;
    t = begin(req, REQUEST_FLUSH, 0, 0);
    if (t != NULL)
        drive_submit(drive, &t->operation);
}

static void on_statfs(fuse_req_t req, fuse_ino_t inode)
{
    struct statvfs st = {.f_bsize = IMAGE_PAGE, .f_frsize = IMAGE_PAGE, .f_namemax = 255};

    (void)inode;
    st.f_blocks = (fsblkcnt_t)(drive->size / IMAGE_PAGE);
    fuse_reply_statfs(req, &st);
}

/* What is missing here, discard above all, the library answers with ENOSYS. */
static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .readdir = on_readdir,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
    .statfs = on_statfs,
};

static void log_line(enum fuse_log_level level, const char *format, va_list arguments)
{
    char line[512];

    (void)level;
    vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    message("%s", line);
}

static void check_machine(const char *directory)
{
    struct stat st;
    int fd;

    if (stat(directory, &st) != 0) {
        if (errno == ENOTCONN)
            die(EXIT_MACHINE, "%s: a dead mount is left there; remove it with: umount -l %s",
                directory, directory);
        die(EXIT_MACHINE, "%s: %s; create the directory first", directory, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode))
        die(EXIT_MACHINE, "%s: not a directory; name an existing, empty one", directory);
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die(EXIT_MACHINE, "/dev/fuse: %s; %s", strerror(errno),
            errno == ENOENT || errno == ENODEV
                ? "load the module (modprobe fuse), or give the container this device "
                  "(--device /dev/fuse --cap-add SYS_ADMIN)"
                : "run as root, or give the container --device /dev/fuse --cap-add SYS_ADMIN");
    close(fd);
}

void fuse_mount(struct drive *d, const char *directory)
{
    char *argument[] = {"wal-drive", "-o", "fsname=wal-drive,subtype=wal-drive"};
    struct fuse_args args = FUSE_ARGS_INIT(3, argument);

    drive = d;
    fuse_set_log_func(log_line);
    check_machine(directory);
    session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    fuse_opt_free_args(&args);
    if (session == NULL)
        die(EXIT_MACHINE, "FUSE refuses a session");
    if (fuse_session_mount(session, directory) != 0)
        die(EXIT_MACHINE,
            "%s: cannot mount; run as root, in a container with --cap-add SYS_ADMIN "
            "--device /dev/fuse and an AppArmor profile that allows mounts",
            directory);
}

int fuse_serve(void)
{
    return fuse_session_loop(session);
}

void fuse_quit(void)
{
    fuse_session_exit(session);
}

void fuse_unmount(void)
{
    /* Lazily: a loop device may still hold the file; its I/O fails from here on. */
    fuse_session_unmount(session);
    fuse_session_destroy(session);
}
