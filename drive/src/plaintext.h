/* Plain text: what can be shown in JSON as it is. */
#ifndef PLAINTEXT_H
#define PLAINTEXT_H

#include <stdbool.h>

/* Without quotes, backslashes and control characters. */
static inline bool is_plain_text(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    return true;
}

#endif
