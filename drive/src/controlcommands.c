#include "controlcommands.h"

#include "control.h"
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a command returns that cannot be understood: the answer says how it is written. */
static const char misused[] = "";

static const char *run_switch(struct drive *d, const char *word, const char *on, const char *off,
                              const char *(*set)(struct drive *, bool))
{
    bool is_on = strcmp(word, on) == 0;

    return is_on || strcmp(word, off) == 0 ? set(d, is_on) : misused;
}

static const char *run_timing(struct drive *d, char *word)
{
    return run_switch(d, word, "on", "off", drive_timing);
}

static const char *run_flush_lies(struct drive *d, char *word)
{
    return run_switch(d, word, "on", "off", drive_flush_lies);
}

static const char *run_destage(struct drive *d, char *word)
{
    return run_switch(d, word, "resume", "pause", drive_destage);
}

static const char *run_write_cache(struct drive *d, char *word)
{
    enum write_cache state;

    return write_cache_named(word, &state) ? drive_write_cache(d, state) : misused;
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

/*
 * "key=0.5" with a share -> value. Each digit takes as many instructions, whatever it is: where
 * time is counted by these, words of one length take one time. (So do those of number_of that
 * begin with 0.)
 */
static bool share_of(const char *word, const char *key, double *value)
{
    size_t length = strlen(key);
    int64_t digits = 0;
    int64_t scale = 0; /* 0: before the point */
    const char *c = word + length + 1;

    if (strncmp(word, key, length) != 0 || word[length] != '=' || *c < '0' || *c > '9')
        return false;
    for (; *c != '\0' && scale < INT64_C(1000000000000); c++) {
        if (*c == '.' && scale == 0) {
            scale = 1;
            continue;
        }
        if (*c < '0' || *c > '9' || digits > scale * 10 + 10)
            return false;
        digits = digits * 10 + (*c - '0');
        scale *= 10;
    }
    *value = (double)digits / (double)(scale > 0 ? scale : 1);
    return *c == '\0' && *value <= 1;
}

static const char *run_power(struct drive *d, char *argument)
{
    struct cut_plan plan = {.keep.seed = 1};
    char *rest = argument;
    char *word = strsep(&rest, " ");
    int64_t value;

    if (strcmp(word, "on") == 0 && rest == NULL)
        return drive_power_on(d);
    if (strcmp(word, "off") != 0)
        return misused;
    while ((word = strsep(&rest, " ")) != NULL) {
        if (strcmp(word, "follow") == 0)
            plan.follow = true;
        else if (number_of(word, "writes", 1, INT64_MAX, &value))
            plan.writes = value;
        else if (number_of(word, "flushes", 1, INT64_MAX, &value))
            plan.flushes = value;
        else if (number_of(word, "within", 1, 86400000, &value))
            plan.within_ns = value * 1000000;
        else if (number_of(word, "seed", 0, INT64_MAX, &value))
            plan.keep.seed = (uint64_t)value;
        else if (number_of(word, "keep-first", 0, INT64_MAX, &value))
            plan.keep.first = value;
        else if (!share_of(word, "keep", &plan.keep.share))
            return "expected after power off: follow, writes=N or flushes=N (1 or more), "
                   "within=MS (1 to 86400000), keep=SHARE (0 to 1), keep-first=N, seed=N (0 or "
                   "more)";
    }
    if ((plan.writes > 0) + (plan.flushes > 0) + plan.follow > 1 ||
        (plan.follow && plan.within_ns > 0))
        return "power off: writes, flushes and follow exclude each other, and follow has no within";
    return drive_power_off(d, &plan);
}

static const char *run_errors(struct drive *d, char *argument)
{
    struct errors errors = {.end = INT64_MAX, .times = INT64_MAX, .until = MODEL_NEVER};
    char *rest = argument;
    char *word = strsep(&rest, " ");
    int64_t value;
    int64_t count = 0;

    if (strcmp(word, "off") == 0 && rest == NULL)
        return drive_errors(d, &errors);
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
    return drive_errors(d, &errors);
}

static const char *run_profile(struct drive *d, char *argument)
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
    return drive_profile(d, &params);
}

static const char *run_trace(struct drive *d, char *argument)
{
    if (strcmp(argument, "off") == 0)
        return drive_trace(d, NULL);
    if (argument[0] != '/')
        return misused;
    return drive_trace(d, argument);
}

static const char *run_line(struct drive *d, char *argument)
{
    if (strcmp(argument, "off") == 0)
        return drive_line(d, NULL);
    return argument[0] == '/' ? drive_line(d, argument) : misused;
}

static const char *run_reset(struct drive *d, char *nothing)
{
    (void)nothing;
    drive_reset(d);
    return NULL;
}

static const char *run_snapshot(struct drive *d, char *nothing)
{
    (void)nothing;
    return drive_snapshot(d);
}

static const char *run_restore(struct drive *d, char *nothing)
{
    (void)nothing;
    return drive_restore(d);
}

static const char *run_quit(struct drive *d, char *nothing)
{
    (void)d;
    (void)nothing;
    control_quit();
    return NULL;
}

static void report_commands(struct drive *d, FILE *out);

/* A command acts, or reports. */
static const struct control_command {
    const char *name;
    const char *arguments;
    const char *(*run)(struct drive *d, char *arguments); /* NULL, or what is wrong */
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
    {"power", "on|off [writes=N|flushes=N|follow] [within=MS] [keep=SHARE] [keep-first=N] [seed=N]",
     run_power, NULL, "off: the power fails, now or as planned"},
    {"line", "PATH|off", run_line, NULL, "share the power with drives of the same PATH"},
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

void control_answer(struct drive *d, char *line, FILE *out)
{
    char *arguments = line;
    const struct control_command *command = command_named(strsep(&arguments, " "));
    const char *problem = NULL;

    if (command == NULL) {
        print_unknown(out);
        return;
    }
    if (command->run != NULL)
        problem = command->run(d, arguments != NULL ? arguments : line + strlen(line));
    if (problem == misused) {
        print_usage(command, out);
    } else if (problem != NULL) {
        print_error(problem, out);
    } else {
        fputs("{\"ok\":true", out);
        if (command->report != NULL) {
            drive_catch_up(d);
            fputc(',', out);
            command->report(d, out);
        }
        fputs("}\n", out);
    }
}
