#include "moves.h"

#include <string.h>

void moves_init(struct moves *moves, struct image *image)
{
    *moves = (struct moves){.image = image};
}

static void add(struct moves *moves, const struct move *move)
{
    if (move->length == 0)
        return;
    if (moves->added - moves->done == MOVES_MAX)
        moves_all(moves);
    moves->move[moves->added++ % MOVES_MAX] = *move;
}

void moves_write(struct moves *moves, int64_t offset, int64_t length, const void *from)
{
    add(moves, &(struct move){.offset = offset, .from = from, .length = length});
}

void moves_copy(struct moves *moves, void *to, const void *from, int64_t length)
{
    add(moves, &(struct move){.to = to, .from = from, .length = length});
}

void moves_discard(struct moves *moves, void *at, int64_t length)
{
    add(moves, &(struct move){.to = at, .length = length});
}

static void begin(struct moves *moves, struct move *move, int64_t length)
{
    if (move->from == NULL)
        image_discard(move->to, length);
    else if (move->to == NULL)
        image_write(moves->image, move->offset, length, move->from);
    else
        memcpy(move->to, move->from, (size_t)length);
    move->offset += length;
    if (move->to != NULL)
        move->to += length;
    if (move->from != NULL)
        move->from += length;
    move->length -= length;
    if (move->length == 0)
        moves->done++;
}

void moves_some(struct moves *moves, int64_t length)
{
    struct move *move = &moves->move[moves->done % MOVES_MAX];

    if (!moves_pending(moves))
        return;
    if (length < move->length) {
        /* Up to the end of a page, so that the next part begins with a whole one. */
        int64_t place = move->to == NULL ? move->offset : (int64_t)(uintptr_t)move->to;

        length -= (place + length) % IMAGE_PAGE;
    } else {
        length = move->length;
    }
    begin(moves, move, length);
}

void moves_all(struct moves *moves)
{
    while (moves_pending(moves))
        moves_some(moves, INT64_MAX);
}
