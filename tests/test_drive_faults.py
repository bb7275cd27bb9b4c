"""Faults planted in the drive's model, each of which its tests must find."""

import subprocess
from pathlib import Path

import pytest

from wallab import paths

FAULTS = {
    "a power cut keeps the cache": ("power", "if (chance(&seed, keep->share)) {", "if (true) {"),
    "a power cut loses what the battery keeps": (
        "power",
        "    if (m->write_cache == CACHE_BATTERY)\n        m->cut.kept_sectors",
        "    if (false)\n        m->cut.kept_sectors",
    ),
    "a torn destage is not saved by the battery": (
        "power",
        "m->medium->restage(m->medium->context, unit, passed);",
        "",
    ),
    "a write is never torn": (
        "power",
        "heads_write(m, u, passed);",
        "heads_write(m, u, u->motion.count);",
    ),
    "what a cut took is not told": (
        "power",
        "m->medium->lost(m->medium->context, sector, count);",
        "(void)sector;",
    ),
    "a planned cut comes a write early": (
        "power",
        "--m->cut_plan.writes == 0",
        "--m->cut_plan.writes <= 1",
    ),
    "a planned cut comes a flush late": (
        "power",
        "--m->cut_plan.flushes == 0",
        "--m->cut_plan.flushes < 0",
    ),
    "a flush of the drive's own counts for a planned cut": ("power", "!flush->honest && ", ""),
    "the pieces that are kept are the newest": (
        "power",
        "cache->writer[s] <= low ||",
        "cache->writer[s] > low ||",
    ),
    "pieces of one write are kept together": (
        "power",
        "cache->writer[s] == low + 1 && first-- > 0",
        "cache->writer[s] == low + 1 && first > 0",
    ),
    "what a write replaced in the midst of another does not part it": (
        "cache",
        "&& c->writer[end] == c->writer[sector])",
        "&& sectors_within(&c->dirty, end, 1))",
    ),
    "who follows a cut keeps nothing": (
        "power",
        "m->cut_planned ? &m->cut_plan.keep : &nothing",
        "&nothing",
    ),
    "who is to follow a cut begins it": ("power", "if (!plan->follow && ", "if ("),
    "a drive does not follow its line": ("drive", "failed > d->powered &&", "false &&"),
    "a drive that follows is late": ("drive", "model_catch_up(&d->model, failed);", ""),
    "a cut is not told to the line": (
        "drive",
        "line_fail(d->line, d->model.cut.at, d->powered);",
        "",
    ),
    "a line that failed once fails for ever": (
        "drive",
        "    model_power_on(&d->model);\n    d->powered = d->model.now;",
        "    model_power_on(&d->model);",
    ),
    "what a line was before a drive came counts for it": (
        "drive",
        "    /* What failed before is none of its business. */\n    d->powered = d->model.now;\n",
        "",
    ),
    "a flush does not wait": (
        "commands",
        "command_enter(m, command, PHASE_FLUSHING, 0);",
        "command_end(m, command, 0);",
    ),
    "a flush is no barrier": (
        "dispatch",
        "bool barrier = !m->params.queued_flush;",
        "bool barrier = false;",
    ),
    "new writes keep a queued flush from its end": (
        "commands",
        "commands_first_in(m, PHASE_FLUSHING) != NULL ||",
        "",
    ),
    "FUA goes to the cache": ("dispatch", "(r->fua && m->write_cache != CACHE_BATTERY)", "false"),
    "an older version in the cache outlives a write past it": (
        "heads",
        "supersede(m, first, run);",
        "",
    ),
    "commands of the same sectors meet in the drive": (
        "dispatch",
        "command->sector < r->sector + r->count && r->sector",
        "false && r->sector",
    ),
    "requests of the same sectors overtake each other": (
        "conflict",
        "older->sector < request->sector + request->count &&",
        "false &&",
    ),
    "the elevator goes back however far": ("anticipatory", "head - r->sector <= BACK_MAX", "true"),
    "the elevator goes back as readily as on": (
        "anticipatory",
        "2 * (head - (*below)->sector) <",
        "(head - (*below)->sector) <",
    ),
    "writes wait for as long as there are reads": (
        "anticipatory",
        "now - a->begun < a->batch_ns[REQUEST_READ]",
        "true",
    ),
    "the time of reads is used up before any write waits": (
        "anticipatory",
        "    if (a->batch == REQUEST_READ)\n        a->begun = now;",
        "    if (a->batch == REQUEST_READ)\n        ;",
    ),
    "a batch of writes is as long as the one before": (
        "anticipatory",
        "    if (took > wanted)",
        "    if (false)",
    ),
    "slow writes make no shorter batches": (
        "anticipatory",
        "bool late = now - a->begun >= a->batch_ns[REQUEST_WRITE];",
        "bool late = false;",
    ),
    "no deadline breaks a sweep": (
        "anticipatory",
        "return now - first->arrival >= expire;",
        "return false;",
    ),
    "all readers are expected back": (
        "streams",
        "each->continued && each->think_ns <= within",
        "true",
    ),
    "no reader is expected back": (
        "streams",
        "each->continued && each->think_ns <= within",
        "false",
    ),
    "readers that think for long are expected back": (
        "streams",
        "each->continued && each->think_ns <= within",
        "each->continued",
    ),
    "all reads are one reader's": ("streams", "distance(each->next, read->sector) <= NEAR", "true"),
    "only the expected read will do": ("anticipatory", "head + CLOSE_AHEAD", "head"),
    "what is expected is waited for behind a flush": (
        "dispatch",
        "m->scheduler.patient = flush == NULL;",
        "m->scheduler.patient = true;",
    ),
    "reads go together though one is to be followed": (
        "anticipatory",
        "if (a->idle_ns > 0 && a->in_drive > 0)",
        "if (false)",
    ),
    "a batch begins before the other has ended": (
        "anticipatory",
        "if (write == NULL || a->in_drive > 0)",
        "if (write == NULL)",
    ),
    "nobody looks when the wait is over": ("events", "m->scheduler.due < next", "false"),
    "the shortest seek is taken, wherever the platter is": (
        "heads",
        "if (motion.seek_ns + motion.rotate_ns < best_ns) {",
        "motion.rotate_ns = 0;\n        if (motion.seek_ns < best_ns) {",
    ),
    "a far command starves": (
        "heads",
        "m->now - oldest->asked > m->params.queue_patience_ns",
        "false",
    ),
    "errors hit all sectors": (
        "errors",
        "r->kind != REQUEST_FLUSH && (r->sector >= e->end",
        "false && (r->sector >= e->end",
    ),
    "the wait for the sector is not counted": (
        "heads",
        "c->rotate_ns += (uint64_t)motion->rotate_ns;",
        "",
    ),
    "the controller takes no time": (
        "dispatch",
        "command_enter(m, command, PHASE_OVERHEAD, m->params.command_overhead_ns);",
        "command_enter(m, command, PHASE_OVERHEAD, 0);",
    ),
    "the cache has no limit": ("cache", "<= c->capacity;", ">= 0;"),
    "what a rewrite replaces counts as room": (
        "commands",
        "!cache_has_room(&m->cache, command->count, m->reserved)",
        "!cache_has_room(&m->cache, command->count -\n"
        "        sectors_within(&m->cache.dirty, command->sector, command->count), m->reserved)",
    ),
    "a read misses what is being destaged": (
        "sectordata",
        "        if (first < last)\n            memcpy(to + bytes(first - r->sector),\n"
        "                   staged_at",
        "        if (false)\n            memcpy(to + bytes(first - r->sector),\n"
        "                   staged_at",
    ),
    "restore keeps the changes": (
        "image",
        "    sectors_clear(&image->changed);\n    return",
        "    return",
    ),
    "a read misses what is yet to be moved": (
        "sectordata",
        "    sectordata_settle(d);\n    if (to == NULL)",
        "    if (to == NULL)",
    ),
    "an answer waits for its bytes to be copied": (
        "sectordata",
        "    moves_write(&d->moves, bytes(sector), bytes(count),\n"
        "                (const unsigned char *)r->data + bytes(sector - r->sector));\n"
        "    if (!r->lasting)",
        "    moves_write(&d->moves, bytes(sector), bytes(count),\n"
        "                (const unsigned char *)r->data + bytes(sector - r->sector));\n"
        "    if (true)",
    ),
    "data that do not last are copied later": (
        "sectordata",
        "    moves_copy(&d->moves, d->cached + bytes(r->sector), r->data, bytes(r->count));\n"
        "    if (!r->lasting)",
        "    moves_copy(&d->moves, d->cached + bytes(r->sector), r->data, bytes(r->count));\n"
        "    if (false)",
    ),
    "memory is given back before it was copied from": (
        "sectordata",
        "moves_discard(&d->moves, d->cached + bytes(first), bytes(end - first));",
        "image_discard(d->cached + bytes(first), bytes(end - first));",
    ),
    "moves are forgotten where there are many": (
        "moves",
        "        moves_all(moves);\n    moves->move",
        "        moves->done++;\n    moves->move",
    ),
    "a part of a copy begins again": ("moves", "    move->offset += length;\n", ""),
    "seeks are not as published": ("seek", "s->root = 5 *", "s->root = 4 *"),
}

TESTS = ("anticipatory", "cache", "moves", "timing", "random", "parts", "line")
FLAGS = ["-std=gnu11", "-O1", "-D_GNU_SOURCE"]


def run(command: list[str | Path]) -> None:
    """Run a compiler; its messages are shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def compile_(source: Path, target: Path) -> None:
    """Compile one C file of the drive; its own folder is where it looks for headers, too."""
    run(["gcc", *FLAGS, "-iquote", paths.DRIVE / "src", "-c", source, "-o", target])


def links(objects: dict[str, Path], folder: Path, test: str) -> Path:
    """Link one of the model's tests."""
    program = folder / f"test-{test}"
    parts = (*MODEL, *(THREADED if test == "line" else ()), "rig", f"test_{test}")
    run(["gcc", *(objects[name] for name in parts), "-lm", "-pthread", "-o", program])
    return program


THREADED = ("drive", "line", "process", "trace")
MODEL = ("anticipatory", "cache", "commands", "conflict", "counters", "destage", "dispatch",
         "errors", "events", "geometry", "heads", "histogram", "image", "mechanism", "model",
         "moves", "params", "power", "readahead", "scheduler", "sectordata", "sectors", "seek",
         "streams")  # fmt: skip


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model and its tests, compiled without a fault."""
    folder = tmp_path_factory.mktemp("objects")
    sources = [paths.DRIVE / "src" / f"{name}.c" for name in (*MODEL, *THREADED)]
    sources += [paths.DRIVE / "tests" / f"{name}.c"
                for name in ("rig", *(f"test_{test}" for test in TESTS))]  # fmt: skip
    for source in sources:
        compile_(source, folder / f"{source.stem}.o")
    return {source.stem: folder / f"{source.stem}.o" for source in sources}


def verdict(program: Path, test: str) -> int:
    """Run a test; what hangs has failed, too."""
    rounds = ["4"] if test == "random" else []
    try:
        return subprocess.run([program, *rounds], capture_output=True, timeout=300).returncode
    except subprocess.TimeoutExpired:
        return 124


def test_without_a_fault_nothing_is_found(objects: dict[str, Path], tmp_path: Path) -> None:
    for test in TESTS:
        assert verdict(links(objects, tmp_path, test), test) == 0, test


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(objects: dict[str, Path], tmp_path: Path, fault: str) -> None:
    name, right, wrong = FAULTS[fault]
    text = (paths.DRIVE / "src" / f"{name}.c").read_text()
    assert text.count(right) == 1, f"{name}.c has changed: plant this fault anew"
    planted = tmp_path / f"{name}.c"
    planted.write_text(text.replace(right, wrong))
    compile_(planted, tmp_path / f"{name}.o")
    mutated = objects | {name: tmp_path / f"{name}.o"}
    assert any(verdict(links(mutated, tmp_path, test), test) for test in TESTS)
