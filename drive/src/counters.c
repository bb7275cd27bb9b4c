#include "counters.h"

#include <inttypes.h>

void counters_json(const struct counters *c, FILE *out)
{
    const char *comma = "";

#define X(name)                                                                                    \
    fprintf(out, "%s\"" #name "\":%" PRIu64, comma, c->name);                                      \
    comma = ",";
    COUNTERS(X)
#undef X
}
