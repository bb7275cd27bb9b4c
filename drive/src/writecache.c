#include "writecache.h"

#include <string.h>

static const char *const names[] = {
    [CACHE_OFF] = "off",
    [CACHE_ON] = "on",
    [CACHE_BATTERY] = "battery",
};

const char *write_cache_name(enum write_cache state)
{
    return names[state];
}

bool write_cache_named(const char *name, enum write_cache *state)
{
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *state = (enum write_cache)i;
            return true;
        }
    return false;
}
