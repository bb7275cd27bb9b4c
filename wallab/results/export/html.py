"""report.html: a run on one page that needs no network, made of its samples alone."""

from typing import Any

import msgspec
from markupsafe import Markup

from wallab.record.manifest import Manifest
from wallab.record.samples import Sample
from wallab.record.values import VALUES
from wallab.results.export import curves, footnotes, plots, ratios, text, variants, webpage
from wallab.results.export.svg import Drawing
from wallab.results.intervals import Estimate
from wallab.results.summary import Summary
from wallab.results.table import Table, axis_title


class CellView(msgspec.Struct, frozen=True):
    """What the page shows of a cell."""

    number: int
    """Its place, from 0; the page's anchors are c0, c1, …"""
    values: tuple[str, ...]
    """On the axes."""
    titles: tuple[str, ...]
    """The same, for people."""
    row: str
    column: str
    cell: Summary
    figure: Estimate | None
    """The first of the table's values."""
    mean: str
    spread: str
    published: str
    reasons: tuple[str, ...]
    samples: tuple[Sample, ...]
    course: Markup | None

    @property
    def name(self) -> str:
        """The cell's row and column."""
        return f"{self.row}, {self.column}"

    @property
    def latency(self) -> tuple[float, float] | None:
        """Median and 99th percentile of latency in ms, each the mean over the samples."""
        courses = [s.figures.course for s in self.samples if s.figures and s.figures.course]
        if not courses:
            return None
        median = sum(course.latency_ms.p50 for course in courses) / len(courses)
        return median, sum(course.latency_ms.p99 for course in courses) / len(courses)


def _views(plan: Manifest, samples: list[Sample], table: Table) -> list[list[CellView | None]]:
    """Return the page's cells, row by row."""
    first = text.figures(table)[0]
    by_cell: dict[tuple[str, ...], list[Sample]] = {}
    for sample in sorted(samples, key=lambda s: (s.round, s.position)):
        if not sample.control:
            by_cell.setdefault(tuple(sample.cell.values()), []).append(sample)
    rows: list[list[CellView | None]] = []
    number = 0
    for row in table.rows:
        views: list[CellView | None] = []
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is None:
                views.append(None)
                continue
            values = tuple(cell.cell.values())
            own = by_cell.get(values, [])
            course = plots.course(own)
            views.append(
                CellView(
                    number=number,
                    values=values,
                    titles=tuple(table.value_title(*place) for place in cell.cell.items()),
                    row=footnotes.row_title(table, row),
                    column=column,
                    cell=cell,
                    figure=plots.figure(table, cell),
                    mean=first.mean(cell),
                    spread=first.interval(cell),
                    published=first.published(cell),
                    reasons=footnotes.reasons(cell),
                    samples=tuple(own),
                    course=_inline(course),
                )
            )
            number += 1
        rows.append(views)
    return rows


def _phases(plan: Manifest, samples: list[Sample]) -> list[tuple[str, float]]:
    """Return what the run's seconds went to; runs of before have no account of their own."""
    if plan.cost:
        return [("measured by pgbench", plan.cost.measured), *plan.cost.phases.items()]
    measured = sum(sample.figures.seconds for sample in samples if sample.figures)
    total: dict[str, float] = {}
    for sample in samples:
        for phase, seconds in sample.phases.items():
            total[phase] = total.get(phase, 0.0) + seconds
    if "measure" in total:
        total["measure"] -= measured
    return [("measured by pgbench", measured), *total.items()]


def _environment(plan: Manifest) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what can move the numbers, in groups of (name, value)."""
    machine, preset = plan.machine, plan.preset
    amount = f"{preset.seconds} s" if preset.seconds else f"{preset.transactions} transactions"
    groups: list[tuple[str, list[tuple[str, str]]]] = [
        (
            "Machine",
            [
                ("system", machine.system),
                ("kernel", machine.kernel),
                ("processor", f"{machine.cpu}, {machine.cpus} usable"),
                ("memory", f"{machine.memory_kb / 1024**2:.1f} GB"),
                ("governor", machine.governor or "not told"),
                *((f"mitigation: {name}", state) for name, state in machine.mitigations.items()),
                *machine.tuning.items(),
                *([("servers' sandbox", machine.sandbox)] if machine.sandbox else []),
            ],
        ),
        (
            "Run",
            [
                ("started", plan.started),
                ("preset", f"{plan.preset_name}: {preset.about}"),
                ("pgbench", f"-s {preset.scale} -c {preset.clients}, {amount} a sample"),
                ("warm-up", f"{preset.warm_up_seconds} s"),
                ("rounds", str(preset.rounds)),
                ("seed", str(plan.seed)),
                *((f"lab: {name}", value) for name, value in plan.lab.items()),
            ],
        ),
        ("Settings of the experiment", sorted(plan.experiment.settings.items())),
    ]
    for name, template in plan.templates.items():
        head = "Cluster" if len(plan.templates) == 1 else f"Cluster {name}"
        plain = [(key, _words(value)) for key, value in template.items() if type(value) is not dict]
        groups.append((head, plain))
        groups += [
            (f"{head}: {key}", [(word, _words(item)) for word, item in value.items()])
            for key, value in template.items()
            if type(value) is dict
        ]
    if plan.mounts:
        groups.append(("Mounts", [(drive, _words(words)) for drive, words in plan.mounts.items()]))
    groups += [
        (f"Drive: {name}", sorted(parameters.items())) for name, parameters in plan.drives.items()
    ]
    for name, build in plan.builds.items():
        facts = msgspec.to_builtins(build, enc_hook=str)
        rows = [(key, _words(value)) for key, value in facts.items() if value not in ("", [], {})]
        groups.append((f"Server: {name}", rows))
    return groups


def _words(value: Any) -> str:
    """Write a value of a manifest for people."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return " · ".join(map(_words, value))
    return str(value)


def _inline(drawing: Drawing | None) -> Markup | None:
    return Markup(drawing.inline()) if drawing else None  # noqa: S704 - svg escapes


def render(plan: Manifest, samples: list[Sample], table: Table) -> str:
    """Return the page; every name in it is escaped, and only its own script may run."""
    rows = _views(plan, samples, table)
    cells = [view for row in rows for view in row if view]
    axes = [
        {
            "name": axis_title(axis),
            "values": [v for v in values if any(view.values[i] == v for view in cells)],
        }
        for i, (axis, values) in enumerate(plan.experiment.axes.items())
    ]
    within = table.within
    numbers = {view.values: view.number for view in cells}
    return webpage.render(
        "page.html",
        ("sort.js", "page.js"),
        axes=axes,
        axis_titles=[axis_title(axis) for axis in table.row_axes],
        cells=cells,
        rows=rows,
        table=table,
        show=text,
        compared=[
            (
                numbers[tuple(pair.cell.values())],
                pair.verdict,
                [*variants.line(within, pair), variants.counted(pair)],
            )
            for pair in within.pairs
        ]
        if within
        else [],
        compared_title=variants.title(within) if within else "",
        compared_heads=[*variants.heads(within), "counted"] if within else [],
        about_verdicts=ratios.about_verdicts(within) if within else "",
        remarks=footnotes.remarks(table),
        value=VALUES[table.values[0]].title,
        # The other values, each with its interval and what was published of it.
        further=text.lines(table, text.figures(table)[1:]),
        values=table.values[1:],
        titles=[VALUES[name].title for name in table.values[1:]],
        digits=[VALUES[name].digits for name in table.values],
        bars=_inline(plots.bars(table)),
        logarithmic=_inline(plots.bars(table, logarithmic=True)),
        heads=_inline(plots.heads(table)) if plots.has_heads(table) else None,
        curves=_inline(curves.along(table)),
        over_time=_inline(curves.over_time(table, samples)),
        drift=_inline(plots.drift(samples, table.values[0])),
        samples=samples,
        measured=sum(1 for s in samples if s.state == "measured"),
        phases=_phases(plan, samples),
        cost=plan.cost,
        environment=_environment(plan),
    )
