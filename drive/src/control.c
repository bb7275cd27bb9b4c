#include "control.h"

#include "message.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS 16
#define LINE 4096

struct client {
    int fd;
    size_t used;
    char line[LINE];
};

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener = -1;
static int signals = -1;
static struct client client[CLIENTS];
static struct drive *drive;
static void (*quit_server)(void);
static pthread_t thread;
static atomic_bool quitting;
static atomic_bool stopped;

/* --- commands -------------------------------------------------------------------------- */

/* "on" and its opposite; -1: neither. */
static int switch_of(const char *word, const char *on, const char *off)
{
    return strcmp(word, on) == 0 ? 1 : strcmp(word, off) == 0 ? 0 : -1;
}

static const char *run_switch(char *argument, const char *on, const char *off,
                              const char *(*set)(struct drive *, bool))
{
    static char expected[64];
    int value = switch_of(argument, on, off);

    if (value >= 0)
        return set(drive, value == 1);
    snprintf(expected, sizeof expected, "expected %s or %s", on, off);
    return expected;
}

/* "key=12" with a number in [minimum, maximum] -> value. */
static bool number_of(const char *word, const char *key, int64_t minimum, int64_t maximum,
                      int64_t *value)
{
    size_t length = strlen(key);
    char *end;

    if (strncmp(word, key, length) != 0 || word[length] != '=' || word[length + 1] == '\0')
        return false;
    errno = 0;
    *value = strtoll(word + length + 1, &end, 10);
    return errno == 0 && *end == '\0' && *value >= minimum && *value <= maximum;
}

/* "key=0.5" with a share -> value. */
static bool share_of(const char *word, const char *key, double *value)
{
    size_t length = strlen(key);
    char *end;

    if (strncmp(word, key, length) != 0 || word[length] != '=' || word[length + 1] == '\0')
        return false;
    *value = strtod(word + length + 1, &end);
    return *end == '\0' && *value >= 0 && *value <= 1;
}

static const char *run_write_cache(const char *argument)
{
    if (strcmp(argument, "battery") == 0)
        return drive_write_cache(drive, CACHE_BATTERY);
    switch (switch_of(argument, "on", "off")) {
    case 1:
        return drive_write_cache(drive, CACHE_ON);
    case 0:
        return drive_write_cache(drive, CACHE_OFF);
    default:
        return "expected off, on or battery";
    }
}

static const char *run_power(char *argument)
{
    struct cut_plan plan = {.seed = 1};
    char *rest = argument;
    char *word = strsep(&rest, " ");
    int64_t value;

    if (strcmp(word, "on") == 0 && rest == NULL)
        return drive_power_on(drive);
    if (strcmp(word, "off") != 0)
        return "expected: power on, or power off [writes=N] [within=MS] [keep=SHARE] [seed=N]";
    while ((word = strsep(&rest, " ")) != NULL) {
        if (number_of(word, "writes", 1, INT64_MAX, &value))
            plan.writes = value;
        else if (number_of(word, "within", 1, 86400000, &value))
            plan.within_ns = value * 1000000;
        else if (number_of(word, "seed", 0, INT64_MAX, &value))
            plan.seed = (uint64_t)value;
        else if (!share_of(word, "keep", &plan.keep))
            return "expected after power off: writes=N (1 or more), within=MS (1 to 86400000), "
                   "keep=SHARE (0 to 1), seed=N (0 or more)";
    }
    return drive_power_off(drive, &plan);
}

static const char *run_errors(char *argument)
{
    static const char *const usage =
        "expected: errors off, or errors all|read|write|flush [times=N] [for=MS] [sector=N] "
        "[count=N]";
    struct errors errors = {.end = INT64_MAX, .times = INT64_MAX, .until = MODEL_NEVER};
    char *rest = argument;
    char *word = strsep(&rest, " ");
    int64_t value;
    int64_t count = 0;

    if (strcmp(word, "off") == 0 && rest == NULL)
        return drive_errors(drive, &errors);
    if (strcmp(word, "all") == 0)
        errors.kinds = 1 << REQUEST_READ | 1 << REQUEST_WRITE | 1 << REQUEST_FLUSH;
    else if (strcmp(word, "read") == 0)
        errors.kinds = 1 << REQUEST_READ;
    else if (strcmp(word, "write") == 0)
        errors.kinds = 1 << REQUEST_WRITE;
    else if (strcmp(word, "flush") == 0)
        errors.kinds = 1 << REQUEST_FLUSH;
    else
        return usage;
    while ((word = strsep(&rest, " ")) != NULL) {
        if (number_of(word, "times", 1, INT64_MAX - 1, &value))
            errors.times = value;
        else if (number_of(word, "for", 1, 86400000, &value))
            errors.until = value * 1000000;
        else if (number_of(word, "sector", 0, INT64_MAX / 2, &value))
            errors.first = value;
        else if (number_of(word, "count", 1, INT64_MAX / 2, &value))
            count = value;
        else
            return usage;
    }
    if (count > 0)
        errors.end = errors.first + count;
    return drive_errors(drive, &errors);
}

static const char *run_profile(char *argument)
{
    static char problem[512];
    struct params params;
    char *rest = argument;
    char *word;

    params_default(&params);
    while ((word = strsep(&rest, " ")) != NULL)
        if (!params_set(&params, word, problem, sizeof problem))
            return problem;
    if (!params_check(&params, problem, sizeof problem))
        return problem;
    return drive_profile(drive, &params);
}

static const char *run_trace(const char *argument)
{
    if (strcmp(argument, "off") == 0)
        return drive_trace(drive, NULL);
    if (argument[0] != '/')
        return "expected an absolute path, or off";
    return drive_trace(drive, argument);
}

static void print_error(const char *problem, FILE *out)
{
    fputs("{\"ok\":false,\"error\":\"", out);
    for (const char *c = problem; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', out);
        if ((unsigned char)*c >= 0x20)
            fputc(*c, out);
    }
    fputs("\"}\n", out);
}

static void run_command(char *line, FILE *out)
{
    char *argument = strchr(line, ' ');
    const char *problem = NULL;
    void (*report)(struct drive *, FILE *) = NULL;

    if (argument != NULL)
        *argument++ = '\0';
    else
        argument = line + strlen(line);

    if (strcmp(line, "state") == 0) {
        report = drive_state_json;
    } else if (strcmp(line, "counters") == 0) {
        report = drive_counters_json;
    } else if (strcmp(line, "reset") == 0) {
        drive_reset(drive);
    } else if (strcmp(line, "timing") == 0) {
        problem = run_switch(argument, "on", "off", drive_timing);
    } else if (strcmp(line, "write-cache") == 0) {
        problem = run_write_cache(argument);
    } else if (strcmp(line, "flush-lies") == 0) {
        problem = run_switch(argument, "on", "off", drive_flush_lies);
    } else if (strcmp(line, "destage") == 0) {
        problem = run_switch(argument, "resume", "pause", drive_destage);
    } else if (strcmp(line, "profile") == 0) {
        problem = run_profile(argument);
    } else if (strcmp(line, "snapshot") == 0) {
        problem = drive_snapshot(drive);
    } else if (strcmp(line, "restore") == 0) {
        problem = drive_restore(drive);
    } else if (strcmp(line, "power") == 0) {
        problem = run_power(argument);
    } else if (strcmp(line, "cut") == 0) {
        report = drive_cut_json;
    } else if (strcmp(line, "errors") == 0) {
        problem = run_errors(argument);
    } else if (strcmp(line, "trace") == 0) {
        problem = run_trace(argument);
    } else if (strcmp(line, "quit") == 0) {
        quitting = true;
    } else {
        problem = "unknown command; there are: state, counters, reset, timing, write-cache, "
                  "flush-lies, destage, profile, snapshot, restore, power, cut, errors, trace, quit";
    }

    if (problem != NULL) {
        print_error(problem, out);
        return;
    }
    fputs("{\"ok\":true", out);
    if (report != NULL) {
        fputc(',', out);
        report(drive, out);
    }
    fputs("}\n", out);
}

/* --- connections ----------------------------------------------------------------------- */

static void disconnect(struct client *c)
{
    close(c->fd);
    c->fd = -1;
}

static void answer(struct client *c, char *line)
{
    char *text = NULL;
    size_t size = 0;
    size_t sent = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) {
        disconnect(c);
        return;
    }
    run_command(line, out);
    fclose(out);
    while (sent < size && c->fd >= 0) {
        ssize_t n = send(c->fd, text + sent, size - sent, MSG_NOSIGNAL);

        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno != EINTR)
            disconnect(c);
    }
    free(text);
}

static void receive(struct client *c)
{
    ssize_t n = recv(c->fd, c->line + c->used, LINE - c->used, 0);
    char *line = c->line;
    char *end;

    if (n <= 0) {
        disconnect(c);
        return;
    }
    c->used += (size_t)n;
    while (c->fd >= 0 && (end = memchr(line, '\n', c->used - (size_t)(line - c->line))) != NULL) {
        *end = '\0';
        answer(c, line);
        line = end + 1;
    }
    c->used -= (size_t)(line - c->line);
    memmove(c->line, line, c->used);
    if (c->used == LINE)
        disconnect(c); /* no command is that long */
}

static void accept_client(void)
{
    /* A client that stops reading must not hold up the others for ever. */
    struct timeval patience = {.tv_sec = 5};
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    for (int i = 0; i < CLIENTS; i++)
        if (client[i].fd < 0) {
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
            client[i].fd = fd;
            client[i].used = 0;
            return;
        }
    close(fd);
}

static void *serve(void *argument)
{
    struct pollfd poll_fd[CLIENTS + 2];

    (void)argument;
    while (!quitting && !stopped) {
        poll_fd[CLIENTS] = (struct pollfd){.fd = listener, .events = POLLIN};
        poll_fd[CLIENTS + 1] = (struct pollfd){.fd = signals, .events = POLLIN};
        for (int i = 0; i < CLIENTS; i++)
            poll_fd[i] = (struct pollfd){.fd = client[i].fd, .events = POLLIN};
        if (poll(poll_fd, CLIENTS + 2, 1000) <= 0)
            continue;
        if (poll_fd[CLIENTS + 1].revents != 0)
            quitting = true;
        for (int i = 0; i < CLIENTS && !quitting; i++)
            if (poll_fd[i].revents != 0)
                receive(&client[i]);
        if (poll_fd[CLIENTS].revents != 0)
            accept_client();
    }
    while (!stopped) {
        quit_server();
        usleep(10000);
    }
    return NULL;
}

/* --- socket ---------------------------------------------------------------------------- */

/* Somebody answers there; a socket without a server is a leftover. */
static bool is_alive(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;

    if (fd >= 0)
        close(fd);
    return alive;
}

static void remove_socket(void)
{
    unlink(address.sun_path);
}

void control_listen(const char *path)
{
    struct stat st;
    mode_t mask;

    if (strlen(path) >= sizeof address.sun_path)
        die(EXIT_USAGE, "--control: longer than a socket's name can be (%zu bytes)",
            sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            die(EXIT_MACHINE, "%s: exists and is no socket; name another", path);
        if (is_alive())
            die(EXIT_MACHINE, "%s: another drive listens there; stop it or name another", path);
        unlink(path);
    }
    mask = umask(0077);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, CLIENTS) != 0)
        die(EXIT_MACHINE, "%s: %s; name a place where a socket can be made", path,
            strerror(errno));
    umask(mask);
    atexit(remove_socket); /* also when mounting fails */
}

bool control_start(struct drive *d, void (*quit)(void))
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signals = signalfd(-1, &set, SFD_CLOEXEC);
    drive = d;
    quit_server = quit;
    for (int i = 0; i < CLIENTS; i++)
        client[i].fd = -1;
    return signals >= 0 && pthread_create(&thread, NULL, serve, NULL) == 0;
}

void control_stop(void)
{
    stopped = true;
    pthread_join(thread, NULL);
}
