/* Events: what happens next in the model, and everything that begins at that moment. */
#ifndef EVENTS_H
#define EVENTS_H

#include "model.h"

/* Do everything due by now, in the order of time, and begin what can begin then. */
void events_run(struct model *m, int64_t now);

/* A command, or heads at work. */
bool events_busy(const struct model *m);

/* To be called around whatever may begin or end work. */
void events_account_busy(struct model *m, bool was_busy);

#endif
