/* Write cache: its states, and their names wherever a user meets them. */
#ifndef WRITECACHE_H
#define WRITECACHE_H

#include <stdbool.h>

enum write_cache { CACHE_OFF, CACHE_ON, CACHE_BATTERY };

#define WRITE_CACHE_NAMES "off, on or battery" /* for messages */

const char *write_cache_name(enum write_cache state);

/* False if no state has that name. */
bool write_cache_named(const char *name, enum write_cache *state);

#endif
