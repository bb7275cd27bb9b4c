/* Parameters: every figure of a drive profile, by flat name. */
#ifndef PARAMS_H
#define PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SECTOR_BYTES 512
#define SECTOR_SHIFT 9
#define ZONES_MAX 64
#define UNITS_MAX 32
#define COMMANDS_MAX 64
#define NS_PER_SECOND INT64_C(1000000000)

enum scheduler_kind { SCHEDULER_CLOOK, SCHEDULER_FIFO, SCHEDULER_ANTICIPATORY };

struct params {
    char name[64];

    /* spindle and platters */
    int64_t rpm;
    int64_t heads;
    int64_t cylinders;
    int64_t zones;
    int64_t zone_sectors[ZONES_MAX]; /* sectors a track, outermost zone first */
    int64_t track_skew_ns;
    int64_t cylinder_skew_ns;

    /* arm */
    int64_t head_switch_ns;
    int64_t seek_track_ns;
    int64_t seek_average_ns;
    int64_t seek_full_ns;
    int64_t write_settle_ns;

    /* several spindles or flash channels, striped */
    int64_t units;
    int64_t stripe_bytes;

    /* flash instead of platters */
    int64_t flash_bytes;
    int64_t flash_read_ns;
    int64_t flash_program_ns;
    int64_t flash_bytes_per_s;

    /* command queue */
    int64_t queue_depth;
    int64_t queue_patience_ns;
    int64_t queued_flush;

    /* controller and interface */
    int64_t command_overhead_ns;
    int64_t flush_overhead_ns;
    int64_t interface_bytes_per_s;

    /* the host's elevator in front of the drive */
    int64_t scheduler;
    int64_t merge_bytes;
    int64_t read_expire_ns;
    int64_t write_expire_ns;
    int64_t read_batch_expire_ns;
    int64_t write_batch_expire_ns;
    int64_t antic_expire_ns;

    /* cache */
    int64_t cache_bytes;
    int64_t destage_idle_ns;
    int64_t read_segments;
    int64_t read_segment_bytes;

    /* no mechanics at all: for measuring the front end itself */
    int64_t constant_latency_ns;
};

void params_default(struct params *p);

/* Set one "key=value"; on failure false and a sentence in error. */
bool params_set(struct params *p, const char *assignment, char *error, size_t size);

/* Relations between parameters that no single range can express. */
bool params_check(const struct params *p, char *error, size_t size);

/* One line a parameter: key, unit, default, range, meaning. */
void params_list(FILE *out);

/* Every parameter as members of a JSON object, without the braces. */
void params_json(const struct params *p, FILE *out);

int64_t params_revolution_ns(const struct params *p);

#endif
