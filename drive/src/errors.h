/* Errors: requests that fail as asked for. They are asked for by model_set_errors. */
#ifndef ERRORS_H
#define ERRORS_H

#include "model.h"

/* Whether this request is one of those that shall fail; that counts as one of their times. */
bool errors_fail(struct model *m, const struct request *r);

#endif
