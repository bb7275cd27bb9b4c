/*
 * The control line: any bytes reach a drive at work, in pieces as a socket brings them. Each line
 * gets one line of JSON back, in which there are no control characters.
 */
#include "stubs.h"

#include "../src/control.c"

#include <fcntl.h>

#define SIZE (4 << 20)
#define REQUESTS 4

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length);

/* Cuts answers into lines, and looks at each. */
struct listener {
    char line[1 << 16];
    size_t used;
    size_t lines;
};

static void check(bool right)
{
    if (!right)
        abort();
}

static void listen_to(int fd, struct listener *l)
{
    char piece[4096];
    ssize_t n;

    while ((n = recv(fd, piece, sizeof piece, MSG_DONTWAIT)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') {
                check((unsigned char)piece[i] >= 0x20 && l->used < sizeof l->line);
                l->line[l->used++] = piece[i];
                continue;
            }
            check(l->used > 2 && l->line[l->used - 1] == '}');
            check(memcmp(l->line, "{\"ok\":", 6) == 0);
            l->used = 0;
            l->lines++;
        }
}

static void ignore(struct operation *o)
{
    (void)o;
}

/* A drive with something in its cache, and some under way. */
static void start(struct drive *d, struct operation *operations, char *bytes)
{
    struct params params;

    params_default(&params);
    check(drive_init(d, &params, SIZE));
    model_set_write_cache(&d->model, CACHE_ON);
    check(drive_start(d));
    for (int i = 0; i < REQUESTS; i++) {
        operations[i] = (struct operation){
            .request = {.kind = i == 2 ? REQUEST_READ : REQUEST_WRITE,
                        .sector = (int64_t)i * 1000,
                        .count = 16,
                        .data = bytes},
            .deliver = ignore,
        };
        drive_submit(d, &operations[i]);
    }
}

static void stop(struct drive *d)
{
    drive_stop(d);
    sectordata_free(&d->data);
    model_free(&d->model);
    free(d->lost);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length)
{
    static struct drive fuzzed;
    static struct operation operation[REQUESTS];
    static char bytes[16 * SECTOR_BYTES];
    static struct listener answers;
    static struct client connected;
    size_t asked = 0;
    size_t piece;
    int ends[2];

    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    answers.used = answers.lines = 0;
    connected.fd = ends[0];
    connected.used = 0;
    start(&fuzzed, operation, bytes);
    drive = &fuzzed;
    for (size_t at = 0; at < length && connected.fd >= 0; at += piece) {
        piece = length - at < 64 ? length - at : 64;
        check(send(ends[1], input + at, piece, MSG_NOSIGNAL) == (ssize_t)piece);
        receive(&connected);
        listen_to(ends[1], &answers);
        for (size_t i = 0; i < piece; i++)
            asked += input[at + i] == '\n';
        check(answers.lines == asked && answers.used == 0);
    }
    stop(&fuzzed);
    close(ends[1]);
    if (connected.fd >= 0)
        disconnect(&connected);
    return 0;
}
