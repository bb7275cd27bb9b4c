"""matrix.toml: the experiments, their cells and their presets."""

import itertools
import re
from pathlib import Path
from typing import Literal

import msgspec

from wallab import paths
from wallab.errors import LabError
from wallab.files.strict import read_toml
from wallab.record import axes, workloads
from wallab.record.conditions import Choice, Conditions, settled
from wallab.record.driveprofile import ELEVATORS, profile
from wallab.record.experiment import Cell, DriveSpec, Experiment, Only, Preset
from wallab.record.filesystem import FILE_SYSTEMS
from wallab.record.gauges import GAUGES
from wallab.record.values import VALUES
from wallab.record.writecache import WRITE_CACHES


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """matrix.toml."""

    experiment: dict[str, Experiment]


def read(file: Path | None = None) -> Matrix:
    """Read matrix.toml; LabError names the file, the key and what was expected."""
    file = file or paths.MATRIX
    matrix = read_toml(file, Matrix)
    for name, experiment in matrix.experiment.items():
        try:
            _check(experiment)
        except LabError as error:
            raise LabError(f"{file}: experiment.{name}.{error}") from None
    return matrix


def _check(experiment: Experiment) -> None:
    """Check what the types cannot say; the LabError begins with the key."""
    _check_axes(experiment)
    check_layout(experiment)
    _check_pacing(experiment)
    _check_drives(experiment)
    _check_condition("usual", experiment.usual, experiment)
    for setting in experiment.settings:
        if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", setting):
            raise LabError(f"settings: “{setting}” is no name of a setting")
    for name, preset in experiment.preset.items():
        try:
            _check_preset(preset, experiment)
        except LabError as error:
            raise LabError(f"preset.{name}{error}") from None


def check_layout(experiment: Experiment) -> None:
    """Check what a table needs of an experiment besides its axes; LabError begins with the key."""
    if sorted((*experiment.rows, experiment.column)) != sorted(experiment.axes):
        raise LabError("rows: expected every axis but the column's, each once")
    if experiment.relative_to not in (None, *experiment.axes[experiment.column]):
        raise LabError(f"relative_to: expected a value of the axis {experiment.column}")
    if experiment.compare_to not in (None, *experiment.axes.get("variant", ())):
        raise LabError("compare_to: expected a value of the axis variant")
    try:
        workloads.find(experiment.workload)
    except LabError as error:
        raise LabError(f"workload: {error}") from None
    _check_figures(experiment)
    if (name := experiment.reference) and not (
        re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name) and reference_file(name).is_file()
    ):
        raise LabError(f"reference: there is no {reference_file(name[:100])}")
    if set(experiment.drive) not in ({"data"}, {"wal", "data"}):
        raise LabError("drive: expected drive.data, and drive.wal unless the WAL lies there, too")


def _check_figures(experiment: Experiment) -> None:
    for value in experiment.values:
        if value not in VALUES:
            raise LabError(f"values: unknown “{value}”; expected {', '.join(VALUES)}")
    for gauge in experiment.series:
        if gauge not in GAUGES:
            raise LabError(f"series: unknown “{gauge}”; expected {', '.join(GAUGES)}")
    if not experiment.values:
        raise LabError(f"values: expected at least one of {', '.join(VALUES)}")


def _check_drives(experiment: Experiment) -> None:
    decided = {"write_cache", "barriers"} & experiment.axes.keys()
    for name, drive in experiment.drive.items():
        if drive.kind == "simulated":
            _check_simulated(name, drive)
        else:
            _check_real(name, drive, experiment)
        if drive.write_cache is None and not decided and drive.kind != "directory":
            raise LabError(f"drive.{name}.write_cache: expected one, since no axis decides it")
        if drive.write_cache is not None and "barriers" in decided:
            raise LabError(f"drive.{name}.write_cache: the axis barriers decides it; take it out")
        for filesystem in drive.mkfs:
            if filesystem not in FILE_SYSTEMS:
                raise LabError(f"drive.{name}.mkfs: expected {' or '.join(FILE_SYSTEMS)}")
    if len(decided) == 2:
        raise LabError("axes: write_cache and barriers both decide the write cache; keep one")


def _check_simulated(name: str, drive: DriveSpec) -> None:
    if drive.filesystem not in FILE_SYSTEMS:
        raise LabError(f"drive.{name}.filesystem: expected {' or '.join(FILE_SYSTEMS)}")
    try:
        profile(drive.profile)
    except LabError as error:
        raise LabError(f"drive.{name}.profile: {error}") from None
    if drive.elevator not in (None, *ELEVATORS):
        raise LabError(f"drive.{name}.elevator: expected {' or '.join(ELEVATORS)}")
    if drive.size_mb is None:
        raise LabError(f"drive.{name}.size_mb: expected the size of the simulated drive")
    if drive.directory:
        raise LabError(f"drive.{name}.directory: is for kind device or directory")
    if drive.write_cache == "as-is":
        raise LabError(f"drive.{name}.write_cache: a simulated drive has {', '.join(WRITE_CACHES)}")


def _check_real(name: str, drive: DriveSpec, experiment: Experiment) -> None:
    for key in ("profile", "size_mb", "elevator", "mkfs"):
        if getattr(drive, key):
            raise LabError(f"drive.{name}.{key}: is for simulated drives")
    for axis in ("profile", "file_system", "barriers", "read_ahead"):
        if axis in experiment.axes:
            raise LabError(f"drive.{name}.kind: the axis {axis} takes simulated drives")
    if not drive.directory:
        raise LabError(f"drive.{name}.directory: expected a directory on the drive")
    if drive.kind == "directory":
        if drive.write_cache not in (None, "as-is"):
            raise LabError(f"drive.{name}.write_cache: that of a directory is as it is")
        if experiment.axes.get("write_cache", ("as-is",)) != ("as-is",) and all(
            other.kind == "directory" or other.write_cache for other in experiment.drive.values()
        ):
            raise LabError(f'axes.write_cache: expected ["as-is"]: drive.{name} is a directory')
    elif drive.write_cache == "as-is":
        raise LabError(f"drive.{name}.write_cache: as-is is for kind directory")


def _check_axes(experiment: Experiment) -> None:
    if not experiment.axes:
        raise LabError("axes: expected at least one")
    for name, values in experiment.axes.items():
        try:
            axis = axes.find(name)
        except LabError as error:
            raise LabError(f"axes: {error}") from None
        if not values or len(set(values)) != len(values):
            raise LabError(f"axes.{name}: expected at least one value, and none twice")
        for value in values:
            try:
                axis.check(value)
            except LabError as error:
                raise LabError(f"axes.{name}: {error}") from None


def _check_pacing(experiment: Experiment) -> None:
    """Check that every workload can be given the rate or the think time that an axis asks for."""
    paced = [name for name, kind in workloads.WORKLOADS.items() if kind.paced]
    for axis in {"rate": "", "think": ""} & experiment.axes.keys():
        for name in experiment.axes.get("workload", (experiment.workload,)):
            if name not in paced:
                raise LabError(
                    f"axes.{axis}: {name} has a pace of its own; the axis takes {', '.join(paced)}"
                )


def _check_preset(preset: Preset, experiment: Experiment) -> None:
    if (preset.transactions is None) == (preset.seconds is None):
        raise LabError(": expected either transactions or seconds")
    for condition in preset.only:
        _check_condition(".only", condition, experiment)
    if preset.control is not None and preset.control not in cells(experiment, preset):
        raise LabError(
            f".control: expected a cell of the preset, a value each of {', '.join(experiment.axes)}"
        )


def _check_condition(key: str, condition: Only, experiment: Experiment) -> None:
    for axis, values in condition.items():
        allowed = experiment.axes.get(axis)
        if allowed is None:
            raise LabError(f"{key}: unknown axis “{axis}”")
        for value in [values] if isinstance(values, str) else values:
            if value not in allowed:
                raise LabError(
                    f"{key}: “{value}” is not on the axis {axis}; "
                    f"expected one of {', '.join(allowed)}"
                )


def with_source(experiment: Experiment, source: str | None) -> Experiment:
    """Return the experiment on another source, if one is named."""
    if source and "source" in experiment.axes:
        raise LabError("this experiment compares sources, so --source cannot replace them")
    return msgspec.structs.replace(experiment, source=source) if source else experiment


def on_real_drives(
    experiment: Experiment, kind: Literal["device", "directory"], directories: dict[str, str]
) -> Experiment:
    """Return the experiment with its drives (name -> directory) on real ones; LabError if none fit.

    A directory's cache is as it is, so the axis write_cache has that one value. Drives in the same
    directory share a device, and so its write cache: all of them follow the axis.
    """
    together = len(set(directories.values())) < len(directories)
    drives = {
        name: DriveSpec(
            kind=kind,
            directory=directories[name],
            write_cache=None
            if kind == "directory" or (together and "write_cache" in experiment.axes)
            else drive.write_cache,
        )
        for name, drive in experiment.drive.items()
    }
    changed = msgspec.structs.replace(experiment, drive=drives)
    if kind == "directory" and "write_cache" in experiment.axes:
        by_itself = {"write_cache": ("as-is",)}
        changed = msgspec.structs.replace(
            changed,
            axes=experiment.axes | by_itself,
            relative_to=None if experiment.column == "write_cache" else experiment.relative_to,
            usual=_without("write_cache", experiment.usual),
            preset={
                name: msgspec.structs.replace(
                    preset,
                    control=preset.control and preset.control | {"write_cache": "as-is"},
                    only=tuple(_without("write_cache", axes) for axes in preset.only),
                )
                for name, preset in experiment.preset.items()
            },
        )
    _check(changed)
    return changed


def conditions(experiment: Experiment, preset: Preset, cell: Cell) -> Conditions:
    """Return what the cell is measured under, each drive's write cache included."""
    choice = Choice(
        scale=preset.scale,
        clients=preset.clients,
        workload=experiment.workload,
        settings=dict(experiment.settings),
    )
    return settled(axes.apply(cell, choice), experiment.drive)


def with_variants(experiment: Experiment, names: tuple[str, ...]) -> Experiment:
    """Return the experiment with these variants instead of its own.

    A preset then measures for each of them what it measures for any variant. What names a variant
    that is left out, a control or what others are relative to, is another one or goes. LabError
    for a variant that there is not.
    """
    if "variant" not in experiment.axes:
        raise LabError("--variants: the experiment has no axis variant")
    by_column = experiment.column == "variant" and experiment.relative_to not in names
    changed = msgspec.structs.replace(
        experiment,
        axes=experiment.axes | {"variant": names},
        relative_to=None if by_column else experiment.relative_to,
        usual=_without("variant", experiment.usual),
        compare_to=experiment.compare_to if experiment.compare_to in names else None,
        preset={
            name: msgspec.structs.replace(preset, only=_without_variant(preset.only))
            for name, preset in experiment.preset.items()
        },
    )
    try:
        _check_axes(changed)
    except LabError as error:
        raise LabError(f"--variants: {error}") from None
    controlled = {name: _with_control(changed, preset) for name, preset in changed.preset.items()}
    return msgspec.structs.replace(changed, preset=controlled)


def _with_control(experiment: Experiment, preset: Preset) -> Preset:
    """Return the preset with a control that it measures, if it has one at all."""
    measured = cells(experiment, preset)
    if preset.control is None or preset.control in measured:
        return preset
    return msgspec.structs.replace(preset, control=default_control(measured))


def default_control(measured: list[Cell]) -> Cell:
    """Return the cell that is measured twice where none is named."""
    # What syncs repeats better than what the processor limits: take the harder one.
    return measured[0]


def _without(name: str, condition: Only) -> Only:
    """Return the condition on the other axes."""
    return {axis: values for axis, values in condition.items() if axis != name}


def _without_variant(only: tuple[Only, ...]) -> tuple[Only, ...]:
    """Return the conditions on the other axes, each once; none if one of them asks for all."""
    rest = [_without("variant", axes) for axes in only]
    return (
        () if {} in rest else tuple(axes for at, axes in enumerate(rest) if axes not in rest[:at])
    )


def memory_mb(experiment: Experiment, preset: Preset) -> int | None:
    """Return what the server and all that it starts may use, in MB; None: no limit."""
    return preset.memory_mb or experiment.memory_mb


def reference_file(name: str) -> Path:
    """Return where the published figures of that name are."""
    return paths.REFERENCE / f"{name}.toml"


def find(matrix: Matrix, experiment: str) -> Experiment:
    """Return the experiment of that name."""
    definition = matrix.experiment.get(experiment)
    if definition is None:
        raise LabError(f"no experiment “{experiment}”; there are {', '.join(matrix.experiment)}")
    return definition


def choose(matrix: Matrix, experiment: str, preset: str) -> tuple[Experiment, Preset]:
    """Return the experiment and its preset by name."""
    definition = find(matrix, experiment)
    how_much = definition.preset.get(preset)
    if how_much is None:
        raise LabError(
            f"{experiment} has no preset “{preset}”; it has {', '.join(definition.preset)}"
        )
    return definition, how_much


def cells(experiment: Experiment, preset: Preset) -> list[Cell]:
    """Return the cells that the preset measures, in the order of the axes."""
    points = itertools.product(*experiment.axes.values())
    every = [dict(zip(experiment.axes, point, strict=True)) for point in points]
    return [cell for cell in every if _stays(cell, preset, experiment.usual)]


def _stays(cell: Cell, preset: Preset, usual: Only) -> bool:
    def fits(condition: Only) -> bool:
        return all(
            cell[axis] == values if isinstance(values, str) else cell[axis] in values
            for axis, values in (usual | condition).items()
        )

    return not preset.only or any(fits(condition) for condition in preset.only)
