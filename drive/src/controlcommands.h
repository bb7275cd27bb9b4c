/* Control commands: what a line on the control socket does, and what is answered. */
#ifndef CONTROLCOMMANDS_H
#define CONTROLCOMMANDS_H

#include "drive.h"

/* Do what the line says, which may be changed on the way; the answer is one JSON object a line. */
void control_answer(struct drive *d, char *line, FILE *out);

#endif
