/* Heads: what each unit does next, and what its accesses do. */
#ifndef HEADS_H
#define HEADS_H

#include "model.h"

int64_t heads_number(const struct model *m, const struct unit *u);

/* The unit's part of a command -> its own sectors; how many there are. */
int64_t heads_part(const struct model *m, int64_t unit, const struct command *command,
                   int64_t *first);

/* The heads are free: give them something to do. True if a command's phase may have changed. */
bool heads_employ(struct model *m, struct unit *u);

/* An access begins: local and count are in the unit's own sectors. */
void heads_start(struct model *m, struct unit *u, enum heads_task task, int64_t local,
                 int64_t count, bool write);
void heads_end(struct model *m, struct unit *u);

/* The times of the unit's access -> the record and the counters. */
void heads_account(struct model *m, const struct unit *u, struct request *record);

/* The first count sectors of what the heads write for a command are on the media. */
void heads_write(struct model *m, const struct unit *u, int64_t count);

/* The read-ahead under way will have it; the heads stay with it until then. */
void heads_stream(struct model *m, struct command *command, int64_t ready);

void heads_forget_readahead(struct model *m);

#endif
