#include "rig.h"

/* Requests that nobody has released; rig_free does. */
struct owned {
    struct request request;
    struct owned *next;
    struct owned **link;
};

static struct owned *owned;

void rig_init(struct rig *rig, int64_t size, bool write_cache, const char *const *assignments)
{
    char error[512];

    memset(rig, 0, sizeof *rig);
    params_default(&rig->params);
    for (; assignments != NULL && *assignments != NULL; assignments++)
        CHECK(params_set(&rig->params, *assignments, error, sizeof error), "%s", error);
    CHECK(params_check(&rig->params, error, sizeof error), "%s", error);
    CHECK(model_init(&rig->model, &rig->params, size / SECTOR_BYTES, &rig->data.medium), "memory");
    CHECK(sectordata_init(&rig->data, size, &rig->params, &rig->model.cache), "memory");
    model_set_write_cache(&rig->model, write_cache);
}

void rig_free(struct rig *rig)
{
    while (owned != NULL)
        rig_release(&owned->request);
    sectordata_free(&rig->data);
    model_free(&rig->model);
}

struct request *rig_request(enum request_kind kind, int64_t sector, int64_t count, int fill)
{
    struct owned *o = calloc(1, sizeof *o);
    struct request *r = &o->request;

    o->next = owned;
    o->link = &owned;
    if (owned != NULL)
        owned->link = &o->next;
    owned = o;
    r->kind = kind;
    r->sector = sector;
    r->count = count;
    r->data = malloc((size_t)(count * SECTOR_BYTES) + 1);
    memset(r->data, fill, (size_t)(count * SECTOR_BYTES));
    return r;
}

void rig_release(struct request *r)
{
    struct owned *o = (struct owned *)r;

    *o->link = o->next;
    if (o->next != NULL)
        o->next->link = o->link;
    free(r->data);
    free(o);
}

static void take(struct rig *rig)
{
    struct request *r = model_advance(&rig->model, rig->now);
    const struct cache *cache = &rig->model.cache;

    CHECK(cache_used(cache) <= cache->capacity,
          "the cache holds %" PRId64 " of %" PRId64 " sectors", cache_used(cache), cache->capacity);
    while (r != NULL) {
        struct request *next = r->next;

        rig->open--;
        CHECK(r->done <= rig->now && r->done >= r->arrival, "completed at a wrong time");
        if (rig->completed != NULL)
            rig->completed(rig, r);
        r = next;
    }
}

void rig_submit(struct rig *rig, struct request *request)
{
    rig->open++;
    model_submit(&rig->model, request, rig->now);
}

void rig_advance(struct rig *rig, int64_t to)
{
    for (;;) {
        int64_t next = model_next_event(&rig->model);

        if (next > to)
            break;
        CHECK(next >= rig->now, "an event lies in the past");
        rig->now = next;
        take(rig);
    }
    rig->now = to;
    take(rig);
}

void rig_finish(struct rig *rig)
{
    take(rig);
    while (rig->open > 0) {
        int64_t next = model_next_event(&rig->model);

        CHECK(next != MODEL_NEVER, "%" PRId64 " requests will never be completed", rig->open);
        rig_advance(rig, next);
    }
}

void rig_rest(struct rig *rig)
{
    take(rig);
    while (model_next_event(&rig->model) != MODEL_NEVER)
        rig_advance(rig, model_next_event(&rig->model));
}

int64_t rig_do(struct rig *rig, struct request *request)
{
    int64_t done;

    rig_submit(rig, request);
    rig_finish(rig);
    done = request->done;
    rig_release(request);
    return done;
}

int64_t rig_write(struct rig *rig, int64_t sector, int64_t count, int fill)
{
    return rig_do(rig, rig_request(REQUEST_WRITE, sector, count, fill));
}

int64_t rig_read(struct rig *rig, int64_t sector, int64_t count)
{
    return rig_do(rig, rig_request(REQUEST_READ, sector, count, 0));
}

int64_t rig_flush(struct rig *rig)
{
    return rig_do(rig, rig_request(REQUEST_FLUSH, 0, 0, 0));
}

int rig_media(struct rig *rig, int64_t sector)
{
    unsigned char data[SECTOR_BYTES];

    sectordata_settle(&rig->data);
    image_read(&rig->data.image, sector * SECTOR_BYTES, SECTOR_BYTES, data);
    for (int i = 1; i < SECTOR_BYTES; i++)
        CHECK(data[i] == data[0], "sector %" PRId64 " is torn inside", sector);
    return data[0];
}

uint64_t rig_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}
