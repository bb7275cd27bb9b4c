/* Trace: a record of every request, written by a thread of its own (TRACE.md). */
#ifndef TRACE_H
#define TRACE_H

#include "request.h"

struct trace;

/* NULL and errno if the file cannot be created. */
struct trace *trace_open(const char *path, int64_t revolution_ns);

/* Never blocks: what the writer cannot take in time is counted as lost. */
void trace_record(struct trace *t, const struct request *r, int64_t delivered);

/* Write out everything; returns the records lost. */
uint64_t trace_close(struct trace *t);

#endif
