/*
 * The trace: requests with any figures in them. The file has its header and a record of each, but
 * for those counted as lost.
 */
#include "../src/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER 64
#define RECORD 104
#define SEQUENCE 0
#define SECTOR 88

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length);

static void check(bool right)
{
    if (!right)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length)
{
    static int file = -1;
    struct request r = {0};
    char path[64];
    char record[RECORD];
    struct trace *t;
    struct stat st;
    uint64_t recorded = 0;
    uint64_t written;

    if (file < 0)
        file = memfd_create("trace", MFD_CLOEXEC);
    check(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    t = trace_open(path, 8333333);
    check(t != NULL);
    /* A piece that is shorter than a request leaves the rest as it was. */
    for (size_t at = 0; at < length; at += sizeof r) {
        size_t piece = length - at < sizeof r ? length - at : sizeof r;
        bool fua = r.fua, honest = r.honest;

        memcpy(&r, input + at, piece);
        r.fua = fua; /* a byte of any value is no bool */
        r.honest = honest;
        r.sequence = recorded++;
        trace_record(t, &r, (int64_t)at);
    }
    written = recorded - trace_close(t);
    check(written <= recorded && (written > 0 || recorded == 0));
    check(fstat(file, &st) == 0 && st.st_size == (off_t)(HEADER + written * RECORD));
    for (uint64_t i = 0, next = 0; i < written; i++) {
        uint64_t sequence;

        check(pread(file, record, RECORD, (off_t)(HEADER + i * RECORD)) == RECORD);
        memcpy(&sequence, record + SEQUENCE, sizeof sequence);
        check(sequence >= next && sequence < recorded);
        next = sequence + 1;
        if (next == recorded)
            check(memcmp(record + SECTOR, &r.sector, sizeof r.sector) == 0);
    }
    return 0;
}
