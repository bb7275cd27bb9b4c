/* Counters: what the drive has done since it started or was reset. */
#ifndef COUNTERS_H
#define COUNTERS_H

#include <stdint.h>
#include <stdio.h>

/* name, meaning (repeated in README.md) */
#define COUNTERS(X)                                                                                \
    X(reads)              /* read requests completed */                                            \
    X(writes)             /* write requests completed */                                           \
    X(flushes)            /* flush requests completed */                                           \
    X(fua_writes)         /* writes among them that asked for the media */                         \
    X(sectors_read)       /* by the host */                                                        \
    X(sectors_written)    /* by the host */                                                        \
    X(requests_failed)    /* without power, cut, or as asked for */                                \
    X(errors_injected)    /* those that failed as asked for */                                     \
    X(commands)           /* commands the elevator gave to the drive */                            \
    X(merged_requests)    /* requests that rode in another's command */                            \
    X(media_reads)        /* accesses of the heads for the host */                                 \
    X(media_writes)       /* accesses of the heads for the host */                                 \
    X(destages)           /* accesses of the heads that emptied the cache */                       \
    X(sectors_destaged)   /* by them */                                                            \
    X(cache_write_hits)   /* writes that the cache took */                                         \
    X(cache_read_hits)    /* reads that were dirty in the cache altogether */                      \
    X(readahead_hits)     /* reads out of a read-ahead segment */                                  \
    X(overhead_ns)        /* controller, fixed part of flushes included */                         \
    X(interface_ns)       /* transfers that only the interface took part in */                     \
    X(wait_ns)            /* commands waiting for heads that were at work for something else */    \
    X(room_ns)            /* writes waiting for room in the cache */                               \
    X(seek_ns)            /* arm and heads moving */                                               \
    X(rotate_ns)          /* waiting for the sector */                                             \
    X(transfer_ns)        /* sectors passing under the head */                                     \
    X(flush_ns)           /* commands: flushes, from dispatch to completion */                     \
    X(command_ns)         /* all commands, from dispatch to completion */                          \
    X(media_ns)           /* accesses of the heads, from start to end */                           \
    X(busy_ns)            /* a command or the heads at work */                                     \
    X(revolutions_waited) /* rotate_ns in whole revolutions */                                     \
    X(dirty_bytes_max)    /* most bytes that only the cache held */

struct counters {
#define X(name) uint64_t name;
    COUNTERS(X)
#undef X
};

/* Members of a JSON object, without the braces. */
void counters_json(const struct counters *c, FILE *out);

#endif
