"""A run's table: rows and columns as the experiment lays them out."""

import msgspec

from wallab import series
from wallab.errors import LabError
from wallab.manifest import Manifest
from wallab.reference import Reference
from wallab.summary import Summary


class Row(msgspec.Struct, frozen=True):
    """A row: its values on the axes of the rows, and a cell for each column, if there is one."""

    head: tuple[str, ...]
    cells: tuple[Summary | None, ...]


class Table(msgspec.Struct, frozen=True):
    """A table of TPS."""

    title: str
    subtitle: str
    row_axes: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: Reference | None

    @property
    def notes(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Warnings, each with the cells (row, column) that it is about."""
        found: dict[str, list[tuple[str, str]]] = {}
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                if cell is None:
                    continue
                texts = list(cell.warnings)
                if cell.failed:
                    texts.append("some runs failed; see samples.jsonl")
                for text in texts:
                    found.setdefault(text, []).append((", ".join(row.head), column))
        return list(found.items())


def variant_title(name: str) -> str:
    """Return a variant's name as the thread wrote it, or the name itself."""
    try:
        known = series.read().variant
    except LabError:
        return name
    return known[name].title if name in known else name


def lay_out(plan: Manifest, summaries: list[Summary], reference: Reference | None) -> Table:
    """Arrange the cells; rows and columns without a cell in this preset are left out."""
    experiment = plan.experiment
    at = {tuple(summary.cell.values()): summary for summary in summaries}
    columns = tuple(
        value
        for value in experiment.axes[experiment.column]
        if any(s.cell[experiment.column] == value for s in summaries)
    )
    heads = dict.fromkeys(tuple(s.cell[axis] for axis in experiment.rows) for s in summaries)
    rows = []
    for head in heads:
        where = dict(zip(experiment.rows, head, strict=True))
        cells = []
        for column in columns:
            point = where | {experiment.column: column}
            cells.append(at.get(tuple(point[axis] for axis in experiment.axes)))
        rows.append(Row(head, tuple(cells)))
    version = ", ".join(sorted({build.version for build in plan.builds.values()}))
    preset = plan.preset
    amount = f"-T {preset.seconds}" if preset.seconds else f"-t {preset.transactions}"
    subtitle = (
        f"PostgreSQL {version}, {plan.started[:10]}, preset {plan.preset_name}: "
        f"{preset.rounds} runs * pgbench -s {preset.scale} -c {preset.clients} {amount}"
    )
    return Table(experiment.title, subtitle, experiment.rows, columns, tuple(rows), reference)
