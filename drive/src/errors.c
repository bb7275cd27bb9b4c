#include "errors.h"

void model_set_errors(struct model *m, const struct errors *errors)
{
    m->errors = *errors;
    if (errors->until != MODEL_NEVER)
        m->errors.until += m->now;
}

bool errors_fail(struct model *m, const struct request *r)
{
    struct errors *e = &m->errors;

    if (!(e->kinds >> r->kind & 1) || r->honest)
        return false;
    if (m->now >= e->until) {
        e->kinds = 0;
        return false;
    }
    if (r->kind != REQUEST_FLUSH && (r->sector >= e->end || r->sector + r->count <= e->first))
        return false;
    if (e->times != INT64_MAX && --e->times == 0)
        e->kinds = 0;
    m->counters.errors_injected++;
    return true;
}
