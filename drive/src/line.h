/*
 * Line: the power that several drives have in common, in a file that each of them
 * maps. Where one of them fails by its own plan, or as told, so do the others, at
 * the same moment of the clock: each looks here whenever it looks at the clock.
 */
#ifndef LINE_H
#define LINE_H

#include <stdint.h>

struct line;

/* NULL, and errno. The file is made if there is none. */
struct line *line_join(const char *path);
void line_leave(struct line *line);

/* When the power failed last; 0: never. */
int64_t line_failed(const struct line *line);

/* It fails. Of several failures since the moment given, the first counts. */
void line_fail(struct line *line, int64_t at, int64_t since);

#endif
