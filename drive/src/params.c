#include "params.h"

#include "plaintext.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum value_kind { VALUE_INTEGER, VALUE_TEXT, VALUE_ZONES, VALUE_SCHEDULER };

struct parameter {
    const char *key;
    const char *unit;
    enum value_kind kind;
    size_t offset;
    int64_t minimum;
    int64_t maximum;
    const char *initial;
    const char *meaning;
};

#define MS(x) ((int64_t)(x) * 1000000)
#define AT(field) offsetof(struct params, field)
#define MAX_COUNT INT64_C(100000000)
#define MAX_BYTES (INT64_C(1) << 40)

/* The defaults are those of profiles/ata-2005.toml, where their sources are. */
static const struct parameter table[] = {
    {"name", "text", VALUE_TEXT, AT(name), 0, 63, "ata-2005", "what state reports as the profile"},
    {"rpm", "1/min", VALUE_INTEGER, AT(rpm), 1000, 60000, "7200", "revolutions of the spindle"},
    {"heads", "count", VALUE_INTEGER, AT(heads), 1, 64, "2", "recording surfaces"},
    {"cylinders", "count", VALUE_INTEGER, AT(cylinders), 2, MAX_COUNT, "95656",
     "tracks of each surface"},
    {"zone_sectors_per_track", "sectors", VALUE_ZONES, AT(zones), 1, 100000,
     "1068,1035,1001,968,934,901,867,834,800,767,733,700,666,633,599,566",
     "comma-separated, outermost zone first; zones have equal numbers of cylinders"},
    {"track_skew_ns", "ns", VALUE_INTEGER, AT(track_skew_ns), 0, MS(100), "1000000",
     "rotation between the last sector of a track and the first under the next head"},
    {"cylinder_skew_ns", "ns", VALUE_INTEGER, AT(cylinder_skew_ns), 0, MS(100), "1200000",
     "the same to the first track of the next cylinder"},
    {"head_switch_ns", "ns", VALUE_INTEGER, AT(head_switch_ns), 0, MS(100), "800000",
     "time to change heads within a cylinder"},
    {"seek_track_ns", "ns", VALUE_INTEGER, AT(seek_track_ns), 0, MS(1000), "1000000",
     "seek over one cylinder"},
    {"seek_average_ns", "ns", VALUE_INTEGER, AT(seek_average_ns), 0, MS(1000), "8500000",
     "mean seek between random places of the whole drive, reading"},
    {"seek_full_ns", "ns", VALUE_INTEGER, AT(seek_full_ns), 0, MS(1000), "16700000",
     "seek over all cylinders"},
    {"write_settle_ns", "ns", VALUE_INTEGER, AT(write_settle_ns), 0, MS(100), "1000000",
     "added to a seek that precedes a write"},
    {"units", "count", VALUE_INTEGER, AT(units), 1, UNITS_MAX, "1",
     "spindles or flash channels, each as described, that the sectors are striped over"},
    {"stripe_bytes", "bytes", VALUE_INTEGER, AT(stripe_bytes), 4096, 16 << 20, "65536",
     "length of a stripe's chunk on one unit, if there are several"},
    {"flash_bytes", "bytes", VALUE_INTEGER, AT(flash_bytes), 0, MAX_BYTES, "0",
     "above 0: each unit is so much flash, and nothing turns"},
    {"flash_read_ns", "ns", VALUE_INTEGER, AT(flash_read_ns), 0, MS(100), "0",
     "flash: fixed time of a read"},
    {"flash_program_ns", "ns", VALUE_INTEGER, AT(flash_program_ns), 0, MS(100), "0",
     "flash: fixed time of a write"},
    {"flash_bytes_per_s", "bytes/s", VALUE_INTEGER, AT(flash_bytes_per_s), 1000000,
     INT64_C(100000000000), "100000000", "flash: rate of one unit"},
    {"queue_depth", "count", VALUE_INTEGER, AT(queue_depth), 1, COMMANDS_MAX, "1",
     "commands in the drive; those that wait for a platter are taken shortest positioning first"},
    {"queue_patience_ns", "ns", VALUE_INTEGER, AT(queue_patience_ns), 0, MS(10000), "200000000",
     "a command that has waited longer for the heads goes first, whatever its position"},
    {"queued_flush", "0|1", VALUE_INTEGER, AT(queued_flush), 0, 1, "0",
     "0: FLUSH waits for all before it and holds up all after it; 1: other commands go on, "
     "but for writes to the cache"},
    {"command_overhead_ns", "ns", VALUE_INTEGER, AT(command_overhead_ns), 0, MS(1000), "300000",
     "controller time before anything else of a command"},
    {"flush_overhead_ns", "ns", VALUE_INTEGER, AT(flush_overhead_ns), 0, MS(1000), "0",
     "fixed cost of FLUSH after everything is on the media"},
    {"interface_bytes_per_s", "bytes/s", VALUE_INTEGER, AT(interface_bytes_per_s), 1000000,
     INT64_C(100000000000), "100000000", "rate between host and cache"},
    {"scheduler", "clook|fifo|anticipatory", VALUE_SCHEDULER, AT(scheduler), 0, 0, "clook",
     "order of the host's elevator in front of the drive"},
    {"merge_bytes", "bytes", VALUE_INTEGER, AT(merge_bytes), 4096, 16 << 20, "524288",
     "longest command made of contiguous waiting requests, and longest destaging write"},
    {"read_expire_ns", "ns", VALUE_INTEGER, AT(read_expire_ns), 0, MS(10000), "125000000",
     "anticipatory: a read that has waited longer goes first; looked at as often"},
    {"write_expire_ns", "ns", VALUE_INTEGER, AT(write_expire_ns), 0, MS(10000), "250000000",
     "anticipatory: likewise of writes"},
    {"read_batch_expire_ns", "ns", VALUE_INTEGER, AT(read_batch_expire_ns), 0, MS(10000),
     "500000000", "anticipatory: how long writes wait while there are reads"},
    {"write_batch_expire_ns", "ns", VALUE_INTEGER, AT(write_batch_expire_ns), 0, MS(10000),
     "125000000", "anticipatory: how long reads wait while there are writes"},
    {"antic_expire_ns", "ns", VALUE_INTEGER, AT(antic_expire_ns), 0, MS(1000), "6000000",
     "anticipatory: how long the drive is kept idle for the next read of a sequence; 0: never"},
    {"cache_bytes", "bytes", VALUE_INTEGER, AT(cache_bytes), 0, INT64_C(16) << 30, "8388608",
     "write cache; 0: none, whatever the switch says"},
    {"destage_idle_ns", "ns", VALUE_INTEGER, AT(destage_idle_ns), 0, MS(10000), "8333333",
     "rest of the heads before destaging begins unasked"},
    {"read_segments", "count", VALUE_INTEGER, AT(read_segments), 0, 64, "8",
     "read-ahead segments; 0: no read-ahead"},
    {"read_segment_bytes", "bytes", VALUE_INTEGER, AT(read_segment_bytes), 4096, 64 << 20, "262144",
     "length of one segment"},
    {"constant_latency_ns", "ns", VALUE_INTEGER, AT(constant_latency_ns), 0, MS(10000), "0",
     "above 0: no mechanics, every request takes this long by itself (measures the front end)"},
};

#define PARAMETERS (sizeof table / sizeof table[0])

static const char *const scheduler_names[] = {"clook", "fifo", "anticipatory"};

static bool parse_integer(const char *text, int64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

static bool set_zones(struct params *p, const struct parameter *k, const char *text)
{
    char copy[1024];
    char *rest = copy;
    char *item;
    int64_t count = 0;

    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    while ((item = strsep(&rest, ",")) != NULL) {
        int64_t value;

        if (count == ZONES_MAX || !parse_integer(item, &value) || value < k->minimum ||
            value > k->maximum)
            return false;
        p->zone_sectors[count++] = value;
    }
    p->zones = count;
    return true;
}

static bool set_value(struct params *p, const struct parameter *k, const char *text, char *error,
                      size_t size)
{
    int64_t *integer = (int64_t *)((char *)p + k->offset);
    int64_t value;

    switch (k->kind) {
    case VALUE_TEXT:
        if (strlen(text) > (size_t)k->maximum || !is_plain_text(text))
            break;
        strcpy((char *)p + k->offset, text);
        return true;
    case VALUE_ZONES:
        if (!set_zones(p, k, text))
            break;
        return true;
    case VALUE_SCHEDULER:
        for (size_t i = 0; i < sizeof scheduler_names / sizeof scheduler_names[0]; i++)
            if (strcmp(text, scheduler_names[i]) == 0) {
                *integer = (int64_t)i;
                return true;
            }
        snprintf(error, size, "%s: \"%s\" is none of clook, fifo, anticipatory", k->key, text);
        return false;
    case VALUE_INTEGER:
        if (!parse_integer(text, &value) || value < k->minimum || value > k->maximum)
            break;
        *integer = value;
        return true;
    }
    snprintf(error, size, "%s: \"%s\" is not %s from %" PRId64 " to %" PRId64 " (%s)", k->key, text,
             k->kind == VALUE_TEXT    ? "a plain text of a length"
             : k->kind == VALUE_ZONES ? "a list of whole numbers"
                                      : "a whole number",
             k->minimum, k->maximum, k->unit);
    return false;
}

void params_default(struct params *p)
{
    char error[256];

    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < PARAMETERS; i++)
        if (!set_value(p, &table[i], table[i].initial, error, sizeof error))
            abort(); /* a default of the table above is out of its own range */
}

bool params_set(struct params *p, const char *assignment, char *error, size_t size)
{
    const char *equals = strchr(assignment, '=');

    if (equals == NULL) {
        snprintf(error, size, "\"%s\" is not key=value", assignment);
        return false;
    }
    for (size_t i = 0; i < PARAMETERS; i++) {
        size_t length = strlen(table[i].key);

        if (length == (size_t)(equals - assignment) &&
            strncmp(table[i].key, assignment, length) == 0)
            return set_value(p, &table[i], equals + 1, error, size);
    }
    snprintf(error, size, "unknown parameter \"%.*s\" (--list-parameters shows all)",
             (int)(equals - assignment), assignment);
    return false;
}

bool params_check(const struct params *p, char *error, size_t size)
{
    /*
     * The curve a + b*sqrt(x) + c*x goes through the three published figures;
     * see seek.c for the bounds that keep it rising.
     */
    double span = (double)(p->seek_full_ns - p->seek_track_ns);
    double mean = (double)(p->seek_average_ns - p->seek_track_ns);
    double root = 5 * (mean - span / 3);

    if (p->cylinders < p->zones) {
        snprintf(error, size, "cylinders: fewer (%" PRId64 ") than zones (%" PRId64 ")",
                 p->cylinders, p->zones);
        return false;
    }
    if (span < 0 || mean < 0 || root < 0 || span - root / 2 < 0) {
        snprintf(error, size,
                 "seek_track_ns, seek_average_ns, seek_full_ns: no rising curve has these three "
                 "(the average lies between 1/3 and 11/15 of the way from track to full)");
        return false;
    }
    if (p->stripe_bytes % 4096 != 0) {
        snprintf(error, size, "stripe_bytes: no multiple of 4096");
        return false;
    }
    if (p->read_segments > 0 && (p->units > 1 || p->flash_bytes > 0)) {
        snprintf(error, size, "read_segments: read-ahead needs one spindle; set 0");
        return false;
    }
    if (p->track_skew_ns < p->head_switch_ns && p->heads > 1) {
        snprintf(error, size,
                 "track_skew_ns: less than head_switch_ns, every track would miss "
                 "a revolution");
        return false;
    }
    if (p->cylinder_skew_ns < p->seek_track_ns) {
        snprintf(error, size,
                 "cylinder_skew_ns: less than seek_track_ns, every cylinder would "
                 "miss a revolution");
        return false;
    }
    if (p->cache_bytes != 0 && p->cache_bytes < 2 * p->merge_bytes) {
        snprintf(error, size, "cache_bytes: neither 0 nor at least twice merge_bytes (%" PRId64 ")",
                 p->merge_bytes);
        return false;
    }
    return true;
}

void params_list(FILE *out)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        const struct parameter *k = &table[i];

        fprintf(out, "%-24s %-10s default %s", k->key, k->unit, k->initial);
        if (k->kind == VALUE_INTEGER || k->kind == VALUE_ZONES)
            fprintf(out, ", %" PRId64 " to %" PRId64, k->minimum, k->maximum);
        fprintf(out, ": %s\n", k->meaning);
    }
}

void params_json(const struct params *p, FILE *out)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        const struct parameter *k = &table[i];
        const char *field = (const char *)p + k->offset;

        fprintf(out, "%s\"%s\":", i == 0 ? "" : ",", k->key);
        switch (k->kind) {
        case VALUE_TEXT:
            fprintf(out, "\"%s\"", field);
            break;
        case VALUE_SCHEDULER:
            fprintf(out, "\"%s\"", scheduler_names[p->scheduler]);
            break;
        case VALUE_ZONES:
            for (int64_t z = 0; z < p->zones; z++)
                fprintf(out, "%c%" PRId64, z == 0 ? '[' : ',', p->zone_sectors[z]);
            fputc(']', out);
            break;
        case VALUE_INTEGER:
            fprintf(out, "%" PRId64, *(const int64_t *)(const void *)field);
            break;
        }
    }
}

int64_t params_revolution_ns(const struct params *p)
{
    return 60 * NS_PER_SECOND / p->rpm;
}
