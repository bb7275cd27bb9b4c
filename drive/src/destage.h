/* Destage: the heads empty the write cache. */
#ifndef DESTAGE_H
#define DESTAGE_H

#include "model.h"

/* When the unit starts destaging if nothing else happens; MODEL_NEVER: it does not. */
int64_t destage_due(const struct model *m, const struct unit *u);
void destage_start(struct model *m, struct unit *u);
void destage_end(struct model *m, struct unit *u);

/* Whatever is being destaged is on the media at once, or is void. */
void destage_end_all(struct model *m, bool written);

#endif
