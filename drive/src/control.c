#include "control.h"

#include "json.h"
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

/* What a command returns that cannot be understood: the answer says how it is written. */
static const char misused[] = "";

static const char *run_switch(const char *word, const char *on, const char *off,
                              const char *(*set)(struct drive *, bool))
{
    bool is_on = strcmp(word, on) == 0;

    return is_on || strcmp(word, off) == 0 ? set(drive, is_on) : misused;
}

static const char *run_timing(char *word)
{
    return run_switch(word, "on", "off", drive_timing);
}

static const char *run_flush_lies(char *word)
{
    return run_switch(word, "on", "off", drive_flush_lies);
}

static const char *run_destage(char *word)
{
    return run_switch(word, "resume", "pause", drive_destage);
}

static const char *run_write_cache(char *word)
{
    enum write_cache state;

    return write_cache_named(word, &state) ? drive_write_cache(drive, state) : misused;
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

static const char *run_power(char *argument)
{
    struct cut_plan plan = {.seed = 1};
    char *rest = argument;
    char *word = strsep(&rest, " ");
    int64_t value;

    if (strcmp(word, "on") == 0 && rest == NULL)
        return drive_power_on(drive);
    if (strcmp(word, "off") != 0)
        return misused;
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
        return misused;
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
            return misused;
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

static const char *run_trace(char *argument)
{
    if (strcmp(argument, "off") == 0)
        return drive_trace(drive, NULL);
    if (argument[0] != '/')
        return misused;
    return drive_trace(drive, argument);
}

static const char *run_reset(char *nothing)
{
    (void)nothing;
    drive_reset(drive);
    return NULL;
}

static const char *run_snapshot(char *nothing)
{
    (void)nothing;
    return drive_snapshot(drive);
}

static const char *run_restore(char *nothing)
{
    (void)nothing;
    return drive_restore(drive);
}

static const char *run_quit(char *nothing)
{
    (void)nothing;
    quitting = true;
    return NULL;
}

static void report_commands(struct drive *d, FILE *out);

/* A command acts, or reports. */
static const struct control_command {
    const char *name;
    const char *arguments;
    const char *(*run)(char *arguments); /* NULL, or what is wrong */
    void (*report)(struct drive *d, FILE *out);
    const char *help;
} commands[] = {
    {"state", "", NULL, json_state, "switches, sizes, parameters"},
    {"counters", "", NULL, json_counters, "counters since the start or reset, and lateness"},
    {"reset", "", run_reset, NULL, "counters and lateness to zero"},
    {"timing", "on|off", run_timing, NULL, "off: everything completes at once"},
    {"write-cache", "off|on|battery", run_write_cache, NULL, "off returns when it is empty"},
    {"flush-lies", "on|off", run_flush_lies, NULL, "on: a flush does not wait for the media"},
    {"destage", "pause|resume", run_destage, NULL, "pause: the cache is not emptied unasked"},
    {"profile", "KEY=VALUE ...", run_profile, NULL, "become a drive with these parameters"},
    {"snapshot", "", run_snapshot, NULL, "the present content is what restore returns to"},
    {"restore", "", run_restore, NULL, "content of the snapshot"},
    {"power", "on|off [writes=N] [within=MS] [keep=SHARE] [seed=N]", run_power, NULL,
     "off: the power fails, now or as planned"},
    {"cut", "", NULL, json_cut, "the last power cut, and what it took"},
    {"errors", "off|all|read|write|flush [times=N] [for=MS] [sector=N] [count=N]", run_errors, NULL,
     "such requests fail"},
    {"trace", "PATH|off", run_trace, NULL, "a record of every request; PATH is absolute"},
    {"help", "", NULL, report_commands, "all commands"},
    {"quit", "", run_quit, NULL, "ends the server"},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void report_commands(struct drive *d, FILE *out)
{
    (void)d;
    fputs("\"commands\":[", out);
    for (size_t i = 0; i < COMMANDS; i++) {
        fputs(i == 0 ? "{\"name\":" : ",{\"name\":", out);
        json_text(commands[i].name, out);
        fputs(",\"arguments\":", out);
        json_text(commands[i].arguments, out);
        fputs(",\"help\":", out);
        json_text(commands[i].help, out);
        fputc('}', out);
    }
    fputc(']', out);
}

static const struct control_command *command_named(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

static void print_error(const char *problem, FILE *out)
{
    fputs("{\"ok\":false,\"error\":", out);
    json_text(problem, out);
    fputs("}\n", out);
}

static void print_unknown(FILE *out)
{
    fputs("{\"ok\":false,\"error\":\"unknown command; there are: ", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "%s%s", i == 0 ? "" : ", ", commands[i].name);
    fputs("\"}\n", out);
}

static void print_usage(const struct control_command *command, FILE *out)
{
    fprintf(out, "{\"ok\":false,\"error\":\"expected: %s %s\"}\n", command->name,
            command->arguments);
}

static void run_command(char *line, FILE *out)
{
    char *arguments = line;
    const struct control_command *command = command_named(strsep(&arguments, " "));
    const char *problem = NULL;

    if (command == NULL) {
        print_unknown(out);
        return;
    }
    if (command->run != NULL)
        problem = command->run(arguments != NULL ? arguments : line + strlen(line));
    if (problem == misused) {
        print_usage(command, out);
    } else if (problem != NULL) {
        print_error(problem, out);
    } else {
        fputs("{\"ok\":true", out);
        if (command->report != NULL) {
            fputc(',', out);
            command->report(drive, out);
        }
        fputs("}\n", out);
    }
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
        die(EXIT_MACHINE, "%s: %s; name a place where a socket can be made", path, strerror(errno));
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
