/* Control: a unix socket; one command a line, one JSON object a line back. */
#ifndef CONTROL_H
#define CONTROL_H

#include "drive.h"

/* Listen; prints why and exits if that cannot be done. */
void control_listen(const char *path);

/*
 * Serve in a thread of its own until `quit`, SIGTERM or SIGINT, which all
 * threads have blocked; then call quit() until control_stop.
 */
bool control_start(struct drive *d, void (*quit)(void));

/* The same as SIGTERM. */
void control_quit(void);

void control_stop(void);

#endif
