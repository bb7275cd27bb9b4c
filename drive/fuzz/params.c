/*
 * Parameters: any assignments, a line each, as profiles and command lines bring them. What is
 * accepted is shown as JSON, and makes a drive that works.
 */
#include "../src/model.h"
#include "../src/sectordata.h"

#include <stdlib.h>
#include <string.h>

#define SIZE (1 << 20)
#define REQUESTS 6

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length);

static void check(bool right)
{
    if (!right)
        abort();
}

static void show(const struct params *params)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    check(out != NULL);
    params_json(params, out);
    fclose(out);
    for (size_t i = 0; i < size; i++)
        check((unsigned char)text[i] >= 0x20);
    free(text);
}

/* Writes and reads over the whole disk, all at once, until they are done; a power cut then. */
static void work(const struct params *params)
{
    static unsigned char bytes[64 * SECTOR_BYTES];
    struct request request[REQUESTS] = {0};
    struct sectordata data;
    struct model model;
    int64_t sectors = SIZE / SECTOR_BYTES;
    int open = REQUESTS;

    check(model_init(&model, params, sectors, &data.medium));
    if (sectordata_init(&data, SIZE, params, &model.cache)) {
        model_set_write_cache(&model, CACHE_ON);
        for (int i = 0; i < REQUESTS; i++) {
            request[i].kind = i == 5 ? REQUEST_FLUSH : i % 3 == 2 ? REQUEST_READ : REQUEST_WRITE;
            request[i].sector = i * (sectors - 64) / (REQUESTS - 1);
            request[i].count = i == 5 ? 0 : 64;
            request[i].fua = i == 3;
            request[i].data = bytes;
            model_submit(&model, &request[i], 1000);
        }
        while (open > 0) {
            int64_t next = model_next_event(&model);

            check(next != MODEL_NEVER && next >= model.now);
            for (struct request *r = model_advance(&model, next); r != NULL; r = r->next)
                open--;
        }
        model_power_off(&model, &(struct keeping){.share = 0.5, .seed = 1});
        sectordata_free(&data);
    }
    model_free(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length)
{
    char *text = malloc(length + 1);
    char *rest = text;
    char *line;
    char error[512];
    struct params params;

    check(text != NULL);
    memcpy(text, input, length);
    text[length] = '\0';
    params_default(&params);
    while ((line = strsep(&rest, "\n")) != NULL)
        if (!params_set(&params, line, error, sizeof error))
            check(strlen(error) > 0);
    free(text);
    if (!params_check(&params, error, sizeof error))
        return 0;
    show(&params);
    check(params_revolution_ns(&params) > 0);
    if (model_capacity(&params) >= SIZE / SECTOR_BYTES)
        work(&params);
    return 0;
}
