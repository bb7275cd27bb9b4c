#include "json.h"

#include "process.h"

#include <inttypes.h>

void json_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', out);
        if ((unsigned char)*c >= 0x20)
            fputc(*c, out);
    }
    fputc('"', out);
}

void json_state(struct drive *d, FILE *out)
{
    const struct model *m = &d->model;

    pthread_mutex_lock(&d->lock);
    fprintf(out, "\"size\":%" PRId64 ",\"power\":\"%s\",\"timing\":\"%s\",\"write_cache\":\"%s\"",
            d->size, m->power ? "on" : "off", m->timing ? "on" : "off",
            write_cache_name(m->write_cache));
    fprintf(out, ",\"flush_lies\":\"%s\",\"destage\":\"%s\",\"in_flight\":%" PRId64,
            m->flush_lies ? "on" : "off", m->destage_paused ? "paused" : "running", m->in_flight);
    fprintf(out, ",\"cuts\":%" PRId64 ",\"cut_planned\":%s,\"errors\":\"%s\"", m->cut.number,
            m->cut_planned ? "true" : "false", m->errors.kinds != 0 ? "on" : "off");
    fprintf(out, ",\"line\":\"%s\"", d->line_path);
    fprintf(out, ",\"dirty_bytes\":%" PRId64 ",\"snapshot\":%s", model_dirty_bytes(m),
            d->data.image.snapshot ? "true" : "false");
    fprintf(out, ",\"base_bytes\":%" PRId64 ",\"overlay_bytes\":%" PRId64,
            image_base_bytes(&d->data.image), image_overlay_bytes(&d->data.image));
    fprintf(out, ",\"capacity_bytes\":%" PRId64 ",\"revolution_ns\":%" PRId64,
            model_capacity(&m->params) * SECTOR_BYTES, params_revolution_ns(&m->params));
    fprintf(out, ",\"now_ns\":%" PRId64, drive_clock());
    fprintf(out, ",\"realtime\":%s,\"memory_locked\":%s,\"io_flusher\":%s",
            d->realtime ? "true" : "false", process_is_locked() ? "true" : "false",
            process_is_io_flusher() ? "true" : "false");
    pthread_mutex_lock(&d->record_lock);
    fprintf(out, ",\"trace\":\"%s\",\"trace_lost\":%" PRIu64, d->trace_path, d->trace_lost);
    pthread_mutex_unlock(&d->record_lock);
    fprintf(out, ",\"parameters\":{");
    params_json(&m->params, out);
    fputc('}', out);
    pthread_mutex_unlock(&d->lock);
}

void json_counters(struct drive *d, FILE *out)
{
    pthread_mutex_lock(&d->lock);
    fputs("\"counters\":{", out);
    counters_json(&d->model.counters, out);
    fprintf(out, ",\"dirty_bytes\":%" PRId64, model_dirty_bytes(&d->model));
    pthread_mutex_lock(&d->record_lock);
    fprintf(out,
            "},\"lateness\":{\"count\":%" PRIu64 ",\"p50_ns\":%" PRId64 ",\"p99_ns\":%" PRId64
            ",\"max_ns\":%" PRId64 "}",
            d->lateness.count, histogram_quantile(&d->lateness, 0.5),
            histogram_quantile(&d->lateness, 0.99), d->lateness.maximum);
    pthread_mutex_unlock(&d->record_lock);
    pthread_mutex_unlock(&d->lock);
}

void json_cut(struct drive *d, FILE *out)
{
    const struct cut *cut = &d->model.cut;

    pthread_mutex_lock(&d->lock);
    fprintf(out, "\"number\":%" PRId64 ",\"at_ns\":%" PRId64 ",\"failed\":%" PRId64, cut->number,
            cut->at, cut->failed);
    fprintf(out, ",\"lost_sectors\":%" PRId64 ",\"kept_sectors\":%" PRId64 ",\"pieces\":%" PRId64,
            cut->lost_sectors, cut->kept_sectors, cut->pieces);
    if (cut->torn_count > 0)
        fprintf(out,
                ",\"torn\":{\"kind\":\"%s\",\"sector\":%" PRId64 ",\"count\":%" PRId64
                ",\"passed\":%" PRId64 "}",
                cut->torn == REQUEST_WRITE ? "write" : "destage", cut->torn_sector, cut->torn_count,
                cut->torn_passed);
    else
        fputs(",\"torn\":null", out);
    fputs(",\"lost\":[", out);
    if (d->lost_cut == cut->number)
        for (size_t i = 0; i < d->lost_count; i++)
            fprintf(out, "%s[%" PRId64 ",%" PRId64 "]", i == 0 ? "" : ",", d->lost[i].sector,
                    d->lost[i].count);
    fputc(']', out);
    pthread_mutex_unlock(&d->lock);
}
