/* Request: one read, write or flush of the host, and what became of it. */
#ifndef REQUEST_H
#define REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum request_kind { REQUEST_READ, REQUEST_WRITE, REQUEST_FLUSH, REQUEST_DESTAGE };

enum request_flag {
    FLAG_FUA = 1,
    FLAG_MERGED = 2,     /* rode in the command of another request, which carries the times */
    FLAG_CACHED = 4,     /* a write that the cache took, a read that it answered */
    FLAG_READ_AHEAD = 8, /* a read out of a read-ahead segment */
    FLAG_FAILED = 16,    /* no power, or an error that was asked for */
    FLAG_UNTIMED = 32,   /* timing was off */
    FLAG_LIED = 64,      /* a flush that did not wait for the media */
};

struct request {
    /* set by the caller, whose memory it is until the request is completed */
    enum request_kind kind;
    int64_t sector;
    int64_t count;
    bool fua;
    bool honest; /* a flush that waits for the media even on a drive that lies */
    void *data;
    bool lasting; /* the data outlive the completion, until they have been moved (moves.h) */

    /* set by the model */
    int64_t arrival;
    uint64_t sequence;
    uint64_t command;
    int64_t start; /* given to the drive */
    int64_t overhead_ns;
    int64_t interface_ns;
    int64_t seek_ns;
    int64_t rotate_ns;
    int64_t transfer_ns;
    int64_t done;
    unsigned flags;
    int error; /* 0 or an errno */

    struct request *next;
};

struct request_list {
    struct request *first;
    struct request **last;
};

static inline void request_list_init(struct request_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static inline void request_list_append(struct request_list *list, struct request *request)
{
    request->next = NULL;
    *list->last = request;
    list->last = &request->next;
}

static inline void request_list_remove(struct request_list *list, struct request **link)
{
    struct request *request = *link;

    *link = request->next;
    if (list->last == &request->next)
        list->last = link;
    request->next = NULL;
}

#endif
