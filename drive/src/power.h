/* Power: planned cuts, and what a cut loses, keeps and tears. The switches are in model.h. */
#ifndef POWER_H
#define POWER_H

#include "model.h"

/* A write has been completed: a planned cut may have waited for it. */
void power_count_write(struct model *m);

/* The same of a flush, if the host asked for it. */
void power_count_flush(struct model *m, const struct request *flush);

#endif
