#include "sectors.h"

#include <stdlib.h>

static int64_t words_for(int64_t bits)
{
    return (bits + 63) / 64;
}

bool sectors_init(struct sectors *s, int64_t size)
{
    int64_t bits = size;

    *s = (struct sectors){.size = size};
    do {
        int64_t words = words_for(bits);

        s->level[s->levels] = calloc((size_t)words, sizeof(uint64_t));
        if (s->level[s->levels] == NULL) {
            sectors_free(s);
            return false;
        }
        s->levels++;
        bits = words;
    } while (bits > 1 && s->levels < SECTORS_LEVELS);
    return true;
}

void sectors_free(struct sectors *s)
{
    for (int i = 0; i < s->levels; i++)
        free(s->level[i]);
    *s = (struct sectors){0};
}

void sectors_clear(struct sectors *s)
{
    int64_t member = sectors_next(s, 0);

    while (member < s->size) {
        int64_t end = sectors_next_absent(s, member, s->size);

        sectors_remove(s, member, end - member);
        member = sectors_next(s, end);
    }
}

/* The bits of word number word that lie in [first, end). */
static uint64_t mask_of(int64_t word, int64_t first, int64_t end)
{
    uint64_t mask = ~UINT64_C(0);

    if (first > word * 64)
        mask &= ~UINT64_C(0) << (first - word * 64);
    if (end < word * 64 + 64)
        mask &= ~UINT64_C(0) >> (word * 64 + 64 - end);
    return mask;
}

/* A word at level 0 has become empty or has stopped being so: tell the levels above. */
static void summarise(struct sectors *s, int64_t word)
{
    for (int i = 1; i < s->levels; i++) {
        uint64_t bit = UINT64_C(1) << (word % 64);
        uint64_t *above = &s->level[i][word / 64];
        uint64_t before = *above;

        if (s->level[i - 1][word] != 0)
            *above |= bit;
        else
            *above &= ~bit;
        if ((before != 0) == (*above != 0) && before != 0)
            return;
        word /= 64;
    }
}

int64_t sectors_add(struct sectors *s, int64_t first, int64_t count)
{
    int64_t end = first + count;
    int64_t added = 0;

    for (int64_t word = first / 64; word * 64 < end; word++) {
        uint64_t fresh = mask_of(word, first, end) & ~s->level[0][word];
        bool was_empty = s->level[0][word] == 0;

        if (fresh == 0)
            continue;
        s->level[0][word] |= fresh;
        added += __builtin_popcountll(fresh);
        if (was_empty)
            summarise(s, word);
    }
    s->members += added;
    return added;
}

int64_t sectors_remove(struct sectors *s, int64_t first, int64_t count)
{
    int64_t end = first + count;
    int64_t removed = 0;

    for (int64_t word = first / 64; word * 64 < end; word++) {
        uint64_t gone = mask_of(word, first, end) & s->level[0][word];

        if (gone == 0)
            continue;
        s->level[0][word] &= ~gone;
        removed += __builtin_popcountll(gone);
        if (s->level[0][word] == 0)
            summarise(s, word);
    }
    s->members -= removed;
    return removed;
}

/* First set bit of a level at or after from, or -1. */
static int64_t next_bit(const struct sectors *s, int level, int64_t from)
{
    int64_t bits = s->size;
    int64_t word = from / 64;
    uint64_t here;

    for (int i = 0; i < level; i++)
        bits = words_for(bits);
    if (from >= bits)
        return -1;
    here = s->level[level][word] & (~UINT64_C(0) << (from % 64));
    if (here == 0) {
        if (level + 1 == s->levels) {
            int64_t words = words_for(bits);

            do
                word++;
            while (word < words && s->level[level][word] == 0);
            if (word >= words)
                return -1;
        } else {
            word = next_bit(s, level + 1, word + 1);
            if (word < 0)
                return -1;
        }
        here = s->level[level][word];
    }
    return word * 64 + __builtin_ctzll(here);
}

int64_t sectors_next(const struct sectors *s, int64_t from)
{
    int64_t bit = s->members == 0 ? -1 : next_bit(s, 0, from);

    return bit < 0 ? s->size : bit;
}

int64_t sectors_next_absent(const struct sectors *s, int64_t from, int64_t limit)
{
    while (from < limit) {
        uint64_t absent = ~s->level[0][from / 64] & (~UINT64_C(0) << (from % 64));

        if (absent != 0) {
            from = from / 64 * 64 + __builtin_ctzll(absent);
            return from < limit ? from : limit;
        }
        from = from / 64 * 64 + 64;
    }
    return limit;
}

int64_t sectors_within(const struct sectors *s, int64_t first, int64_t count)
{
    int64_t end = first + count;
    int64_t within = 0;

    if (s->members == 0)
        return 0;
    for (int64_t word = first / 64; word * 64 < end; word++)
        within += __builtin_popcountll(s->level[0][word] & mask_of(word, first, end));
    return within;
}
