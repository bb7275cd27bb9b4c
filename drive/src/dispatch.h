/* Dispatch: the way of requests through the host's elevator into the drive. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include "model.h"

/* What arrived before a flush goes into the elevator; the flush and the rest wait. */
void dispatch_admit(struct model *m);

/* The elevator gives the drive a command, if it may; false if not. */
bool dispatch_next(struct model *m);

#endif
