/* Commands: those in the drive, from phase to phase, and the completion of their requests. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "model.h"

/* A request is completed now; error: 0 or an errno. */
void commands_complete(struct model *m, struct request *r, int error);

/* A command is done, and its requests with it; flags are for each of them. */
void command_end(struct model *m, struct command *command, unsigned flags);
void command_flag(struct command *command, unsigned flag);

void command_enter(struct model *m, struct command *command, enum command_phase phase,
                   int64_t duration);

/* The interface carries one transfer at a time. */
void command_enter_interface(struct model *m, struct command *command);

/* In a phase that ends by itself, at phase_end. */
bool command_is_timed(const struct command *command);

/* True if a phase has ended. */
bool commands_end_due(struct model *m);

/* The first of the commands in that phase to have come; NULL: none. */
struct command *commands_first_in(struct model *m, enum command_phase phase);

/* A write that the cache has room for; while a flush empties it, new ones stay out. */
bool commands_let_in(struct model *m);

/* Something waits for the cache to become emptier. */
bool commands_press_cache(const struct model *m);

/* A command that is going to need the heads gets them. */
bool commands_want_heads(const struct model *m);

#endif
