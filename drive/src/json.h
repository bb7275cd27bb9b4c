/* JSON: what the control socket says of the drive. */
#ifndef JSON_H
#define JSON_H

#include "drive.h"

/* Between quotes; without what no message holds, such as newlines. */
void json_text(const char *text, FILE *out);

/* Members of an object, without the braces. */
void json_state(struct drive *d, FILE *out);
void json_counters(struct drive *d, FILE *out);
void json_cut(struct drive *d, FILE *out);

#endif
