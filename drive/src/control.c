#include "control.h"

#include "controlcommands.h"
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
    control_answer(drive, line, out);
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

void control_quit(void)
{
    quitting = true;
}

void control_stop(void)
{
    stopped = true;
    pthread_join(thread, NULL);
}
