/* Streams: who reads, told by where; and how soon they come back for more. */
#ifndef STREAMS_H
#define STREAMS_H

#include "request.h"

#define STREAMS_MAX 64

/* Reads, each of which begins near the end of the one before. */
struct stream {
    int64_t next;     /* the sector behind its newest read */
    uint64_t newest;  /* sequence of that read; 0: there is no such stream */
    bool reading;     /* which is not completed yet */
    int64_t done;     /* or was then */
    bool continued;   /* so that the think time is known */
    int64_t think_ns; /* mean time from a read's completion to the next one's arrival */
};

struct streams {
    struct stream stream[STREAMS_MAX];
};

/* A read arrives: it continues a stream, or begins one in the place of the one unused longest. */
void streams_arrived(struct streams *s, const struct request *read, int64_t now);

/* A read is completed: whether its stream's next one is to be expected within the time. */
bool streams_completed(struct streams *s, const struct request *read, int64_t now, int64_t within);

#endif
