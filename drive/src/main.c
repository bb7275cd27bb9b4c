/* wal-drive: a simulated disk drive behind one file. */

#include "control.h"
#include "drive.h"
#include "fuse.h"
#include "message.h"
#include "process.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Below the timer's: what is due goes out before what is new comes in. */
#define READER_PRIORITY 10

static const char usage[] =
    "usage: wal-drive --mount DIR --control SOCKET --size BYTES [--write-cache MODE]\n"
    "                 [--timing off|on] [--set KEY=VALUE]...\n"
    "       wal-drive --list-parameters\n"
    "\n"
    "Serves a simulated disk drive as the file DIR/disk until SIGTERM, SIGINT or the\n"
    "command `quit` on SOCKET. Prints `ready` when it can be used.\n"
    "\n"
    "  --mount DIR          where to mount; an existing directory\n"
    "  --control SOCKET     unix socket for commands (README.md)\n"
    "  --size BYTES         size of the disk, a multiple of 4096\n"
    "  --write-cache MODE   off, on (volatile) or battery (default off)\n"
    "  --timing off|on      off: everything completes at once (default on)\n"
    "  --set KEY=VALUE      a parameter of the drive; the defaults are ata-2005\n"
    "  --list-parameters    all of them with unit, default, range and meaning\n"
    "\n"
    "Exit: 0 ended as asked, 2 bad usage, 3 this machine cannot do it.\n";

struct options {
    const char *mount;
    const char *control;
    int64_t size;
    enum write_cache write_cache;
    bool timing;
    struct params params;
};

static struct drive drive;
static pthread_t main_thread;

static bool parse_switch(const char *option, const char *value)
{
    if (strcmp(value, "on") == 0)
        return true;
    if (strcmp(value, "off") != 0)
        die(EXIT_USAGE, "%s: \"%s\" is neither on nor off", option, value);
    return false;
}

static int64_t parse_size(const char *value)
{
    char *end;
    int64_t size;

    errno = 0;
    size = strtoll(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || size <= 0 || size % IMAGE_PAGE != 0 ||
        size > INT64_C(1) << 44)
        die(EXIT_USAGE, "--size: \"%s\" is no number of bytes that is a multiple of %d", value,
            IMAGE_PAGE);
    return size;
}

static void parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = {
        {"mount", required_argument, NULL, 'm'},
        {"control", required_argument, NULL, 'c'},
        {"size", required_argument, NULL, 's'},
        {"write-cache", required_argument, NULL, 'w'},
        {"timing", required_argument, NULL, 't'},
        {"set", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {"list-parameters", no_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    char error[512];
    int c;

    *o = (struct options){.timing = true};
    params_default(&o->params);
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'm':
            o->mount = optarg;
            break;
        case 'c':
            o->control = optarg;
            break;
        case 's':
            o->size = parse_size(optarg);
            break;
        case 'w':
            if (!write_cache_named(optarg, &o->write_cache))
                die(EXIT_USAGE, "--write-cache: \"%s\" is not " WRITE_CACHE_NAMES, optarg);
            break;
        case 't':
            o->timing = parse_switch("--timing", optarg);
            break;
        case 'p':
            if (!params_set(&o->params, optarg, error, sizeof error))
                die(EXIT_USAGE, "--set: %s", error);
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        case 'l':
            params_list(stdout);
            exit(0);
        default:
            die(EXIT_USAGE, "see wal-drive --help");
        }
    }
    if (optind < argc)
        die(EXIT_USAGE, "unexpected argument \"%s\"; see wal-drive --help", argv[optind]);
    if (o->mount == NULL || o->control == NULL || o->size == 0)
        die(EXIT_USAGE, "--mount, --control and --size are needed; see wal-drive --help");
    if (!params_check(&o->params, error, sizeof error))
        die(EXIT_USAGE, "--set: %s", error);
    if (o->size / SECTOR_BYTES > model_capacity(&o->params))
        die(EXIT_USAGE,
            "--size: the drive has only %lld bytes (cylinders, heads, "
            "zone_sectors_per_track, flash_bytes, units)",
            (long long)model_capacity(&o->params) * SECTOR_BYTES);
    if (o->write_cache != CACHE_OFF && o->params.cache_bytes == 0)
        die(EXIT_USAGE, "--write-cache: this drive has no cache (cache_bytes=0)");
}

static void wake_up(int signal)
{
    (void)signal; /* it is enough that a system call was interrupted */
}

static void quit(void)
{
    fuse_quit();
    pthread_kill(main_thread, SIGUSR1);
}

static void prepare_signals(void)
{
    struct sigaction wake = {.sa_handler = wake_up}; /* without SA_RESTART */
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGUSR1, &wake, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
    struct options o;
    static char name[] = "wal-drive";

    argv[0] = name; /* what getopt puts before its messages */
    parse(argc, argv, &o);
    process_prepare();
    prepare_signals();
    main_thread = pthread_self();
    if (!drive_init(&drive, &o.params, o.size))
        die(EXIT_MACHINE, "not enough memory for a disk of %lld bytes", (long long)o.size);
    model_set_write_cache(&drive.model, o.write_cache);
    model_set_timing(&drive.model, o.timing);
    control_listen(o.control);
    fuse_mount(&drive, o.mount);
    process_lock_memory();
    if (!drive_start(&drive) || !control_start(&drive, quit))
        die(EXIT_MACHINE, "cannot start threads: %s", strerror(errno));
    process_realtime(READER_PRIORITY);
    fuse_serve();
    control_stop();
    drive_stop(&drive);
    fuse_unmount();
    return 0;
}
