"""A run's variants beside those that they are built on: bases, ratios, verdicts, and the gate."""

import csv
import io
import json
import random
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from wallab import paths
from wallab.command import tabulate
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.record import manifest, matrix
from wallab.record.build import AppliedPatch
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.measured import Measured
from wallab.record.samples import CpuSeconds, Sample, SampleFile
from wallab.record.virtualmachine import VirtualMachine
from wallab.results import comparison, summary, tabulation, within
from wallab.results.export import ratios
from wallab.results.within import Within

EXAMPLE = paths.RESULTS / "example-quick"
PATCHES = {
    "stock": "",
    "gather-ring": "r",
    "baseline": "sb",
    "direct-io": "sbd",
    "both": "sbdg",
    "mine": "r!",
    "elsewhere": "x",
}
"""Variant -> a letter for each patch."""
SYNC = ("fdatasync", "open_sync")


@pytest.fixture(scope="module")
def example() -> Manifest:
    """The manifest of the committed example run."""
    return manifest.load(EXAMPLE)


def plan_of(example: Manifest, *variants: str, compare_to: str | None = None) -> Manifest:
    """A run of the variants, with the cache off and two methods."""
    axes = {"variant": variants, "write_cache": ("off",), "sync": SYNC}
    experiment = msgspec.structs.replace(
        example.experiment, axes=axes, reference=None, relative_to=None, compare_to=compare_to
    )
    build = example.builds["both"]
    return msgspec.structs.replace(
        example,
        experiment=experiment,
        cells=tuple(matrix.cells(experiment, msgspec.structs.replace(example.preset, only=()))),
        builds={
            name: msgspec.structs.replace(
                build, patches=tuple(AppliedPatch(p, f"sha-{p}") for p in PATCHES[name])
            )
            for name in variants
        },
        methods=dict.fromkeys(variants, SYNC),
        not_applicable=(),
    )


def samples_of(
    plan: Manifest, rates: dict[str, float], rounds: int = 8, spread: float = 0.01
) -> list[Sample]:
    """Samples of the variants' cells about these rates; each round as a whole is slow or fast."""
    source = random.Random(len(rates))
    template = SampleFile(EXAMPLE / "samples.jsonl").read()[0]
    samples = []
    for number in range(1, rounds + 1):
        luck = source.uniform(0.5, 2)
        for cell in plan.cells:
            if (rate := rates.get(cell["variant"])) is not None:
                tps = rate * luck * source.gauss(1, spread)
                figures = Measured(tps, 1000, 0, 1.0, 1.0)
                samples.append(
                    msgspec.structs.replace(template, cell=cell, round=number, figures=figures)
                )
    return samples


def compared(plan: Manifest, samples: list[Sample]) -> Within:
    """The comparison, which there is."""
    result = within.compare(plan, samples, summary.summarize(plan, samples, None))
    assert result is not None
    return result


def cell(variant: str, sync: str = "fdatasync") -> Cell:
    """A cell of such a run."""
    return {"variant": variant, "write_cache": "off", "sync": sync}


@pytest.mark.parametrize(
    ("variants", "bases"),
    [
        (["stock", "gather-ring", "mine"], [None, "stock", "gather-ring"]),
        (["stock", "both", "direct-io"], [None, "direct-io", "stock"]),
        # Where what it is built on is not measured, what that is built on is the nearest.
        (["baseline", "both", "gather-ring"], [None, "baseline", None]),
        (["direct-io", "mine", "elsewhere"], [None, None, None]),
    ],
)
def test_bases_follow_from_the_patches(
    example: Manifest, variants: list[str], bases: list[str | None]
) -> None:
    plan = plan_of(example, *variants)
    assert [within.base_of(plan, cell(variant)) for variant in variants] == bases


def test_an_experiment_names_the_base(example: Manifest) -> None:
    plan = plan_of(example, "stock", "direct-io", "both", compare_to="both")
    bases = [within.base_of(plan, cell(name)) for name in ("stock", "direct-io", "both")]
    assert bases == ["both", "both", None]


def test_a_base_is_of_the_same_source(example: Manifest) -> None:
    plan = plan_of(example, "stock", "gather-ring")
    builds = {f"17/{name}": build for name, build in plan.builds.items()}
    plan = msgspec.structs.replace(plan, builds=builds)
    assert within.base_of(plan, cell("gather-ring") | {"source": "17"}) == "stock"
    assert within.base_of(plan, cell("gather-ring") | {"source": "18"}) is None


def test_what_shifts_a_whole_round_cancels(example: Manifest) -> None:
    plan = plan_of(example, "stock", "gather-ring", "direct-io")
    samples = samples_of(plan, {"stock": 100, "gather-ring": 110, "direct-io": 100})
    result = compared(plan, samples)
    assert [(p.cell["variant"], p.base, p.verdict) for p in result.pairs] == [
        *[("gather-ring", "stock", "faster")] * 2,
        *[("direct-io", "stock", "no difference seen")] * 2,
    ]
    assert all(p.comparison.ratio == pytest.approx(1.1, rel=0.02) for p in result.pairs[:2])
    # Not by the rates alone, which the rounds' luck moves by a factor of four.
    tps = [s.figures.tps for s in samples if s.figures and s.cell == cell("stock")]
    assert max(tps) / min(tps) > 2


def test_verdicts_are_corrected_for_the_number_of_cells(example: Manifest) -> None:
    """Eight cells that do not differ get no verdict, where one of them alone would."""
    wrong = alone = 0
    names = ("stock", "gather-ring", "baseline", "elsewhere", "direct-io")
    plan = plan_of(example, *names, compare_to="stock")
    for seed in range(60):
        samples = samples_of(plan, dict.fromkeys(names, 100.0 + seed), rounds=6)
        source = random.Random(seed)
        noisy = [
            msgspec.structs.replace(
                s, figures=msgspec.structs.replace(s.figures, tps=100 * source.gauss(1, 0.02))
            )
            for s in samples
            if s.figures
        ]
        result = compared(plan, noisy)
        wrong += any(p.verdict in {"faster", "slower"} for p in result.pairs)
        alone += any(
            comparison.verdicts([p.comparison])[0] in {"faster", "slower"} for p in result.pairs
        )
    assert wrong <= 5
    assert alone >= 10


def test_virtual_time_wants_a_difference_of_some_size(example: Manifest) -> None:
    virtual = VirtualMachine(**dict.fromkeys(VirtualMachine.__struct_fields__, ""))  # type: ignore[arg-type]
    plan = plan_of(example, "stock", "gather-ring", "direct-io")
    rates = {"stock": 100, "gather-ring": 100.5, "direct-io": 98}
    samples = samples_of(plan, rates, spread=0.0001)
    assert [p.verdict for p in compared(plan, samples).pairs] == ["faster"] * 2 + ["slower"] * 2
    result = compared(msgspec.structs.replace(plan, virtual=virtual), samples)
    assert [p.verdict for p in result.pairs] == ["differs by less than 1%"] * 2 + ["slower"] * 2
    assert "at least 1%" in ratios.about_verdicts(result)
    assert "at least" not in ratios.about_verdicts(compared(plan, samples))


def test_what_has_no_verdict_is_named(example: Manifest) -> None:
    plan = plan_of(example, "stock", "gather-ring", "direct-io", "both")
    lacks = plan.methods | {"both": ("fdatasync",)}
    plan = msgspec.structs.replace(plan, methods=lacks)
    samples = samples_of(plan, {"stock": 100, "direct-io": 100})
    failed = msgspec.structs.replace(samples[0], state="failed", figures=None, error="no")
    samples.append(msgspec.structs.replace(failed, cell=cell("both")))
    result = compared(plan, samples)
    assert result.failed == (cell("both"),)
    # What failed, or is (N/A), is no cell that nobody got round to.
    assert result.unjudged == [cell("gather-ring"), cell("gather-ring", "open_sync")]
    few = compared(plan, [s for s in samples if s.round <= 4])
    assert [p.verdict for p in few.pairs] == ["too few rounds"] * 2
    assert cell("direct-io") in few.unjudged


def test_controls_are_no_cells(example: Manifest) -> None:
    plan = plan_of(example, "stock", "gather-ring")
    used = CpuSeconds(1.0, 1.0)
    samples = [
        msgspec.structs.replace(s, cpu_seconds=used)
        for s in samples_of(plan, {"stock": 100, "gather-ring": 100})
    ]
    second = [
        msgspec.structs.replace(
            s,
            control=True,
            figures=msgspec.structs.replace(s.figures, tps=1.0),
            cpu_seconds=CpuSeconds(9.0, 9.0),
        )
        for s in samples
        if s.figures and s.cell["variant"] == "gather-ring"
    ]
    result = compared(plan, samples)
    assert compared(plan, [*samples, *second]).pairs == result.pairs
    assert not any(pair.changes for pair in result.pairs)


# --- the forms, and the gate ----------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, example: Manifest) -> Path:
    """A run in which gather-ring is faster than stock, and mine slower than gather-ring."""
    plan = plan_of(example, "stock", "gather-ring", "mine")
    jsonfile.save(tmp_path / "manifest.json", plan)
    file = SampleFile(tmp_path / "samples.jsonl")
    for sample in samples_of(plan, {"stock": 100, "gather-ring": 120, "mine": 100}):
        file.append(sample)
    return tmp_path


def test_every_form_shows_it(run: Path) -> None:
    results = tabulation.results_of(run)
    text = tabulation.render(results, "text")
    lines = [line for line in text.splitlines() if line.endswith(" | slower")]
    assert [line.split(" | ")[1].strip() for line in lines] == ["gather-ring"] * 2
    markdown = tabulation.render(results, "markdown")
    assert "| gather-ring | stock | off | fdatasync | 1." in markdown
    rows = list(csv.DictReader(io.StringIO(tabulation.render(results, "csv"))))
    verdicts = {row["variant"]: (row["compared_to"], row["verdict"]) for row in rows}
    assert verdicts == {
        "stock": ("", ""),
        "gather-ring": ("stock", "faster"),
        "mine": ("gather-ring", "slower"),
    }
    (ratio,) = [row["ratio"] for row in rows if list(row.values())[:3] == ["mine", "off", SYNC[0]]]
    assert f"| {float(ratio):.3f} |" in lines[0]
    pairs = json.loads(tabulation.render(results, "json"))["within"]["pairs"]
    assert [pair["base"] for pair in pairs] == ["stock"] * 2 + ["gather-ring"] * 2
    page = tabulation.render(results, "html")
    assert page.count('class="slower"') == page.count('class="faster"') == 2
    assert 'href="#variants"' in page
    for document in (text, markdown, page):
        assert "TPS of each variant by that of its base" in document


def test_a_run_without_bases_says_nothing_of_them(example: Manifest, tmp_path: Path) -> None:
    plan = plan_of(example, "stock", "elsewhere")
    alone = msgspec.structs.replace(
        plan, builds=dict.fromkeys(plan.builds, plan.builds["elsewhere"])
    )
    jsonfile.save(tmp_path / "manifest.json", alone)
    file = SampleFile(tmp_path / "samples.jsonl")
    for sample in samples_of(alone, {"stock": 100, "elsewhere": 90}):
        file.append(sample)
    results = tabulation.results_of(tmp_path)
    assert results.table.within is None
    for kind in ("text", "markdown", "html"):
        assert "its base" not in tabulation.render(results, kind)
    assert "compared_to" not in tabulation.render(results, "csv")


def gated(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and messages of the command."""
    result = CliRunner().invoke(tabulate.command, list(map(str, arguments)), standalone_mode=False)
    code = 2 if result.exception else result.return_value
    return code, result.stderr + str(result.exception or "")


def test_gate(run: Path) -> None:
    code, messages = gated(run, "--fail-if-slower", "5")
    assert code == 1
    assert [line[:17] for line in messages.splitlines()] == ["slower: mine, off"] * 2
    assert gated(run, "--fail-if-slower", "30") == (0, "")
    plan = manifest.load(run)
    kept = msgspec.structs.replace(
        plan.experiment, axes=plan.experiment.axes | {"variant": ("mine", "mine2")}
    )
    both = {"mine": plan.builds["mine"], "mine2": plan.builds["mine"]}
    cells = tuple(cell for cell in plan.cells if cell["variant"] == "mine")
    jsonfile.save(
        run / "manifest.json",
        msgspec.structs.replace(plan, experiment=kept, builds=both, cells=cells),
    )
    code, messages = gated(run, "--fail-if-slower", "5")
    assert code == 2
    assert "name a run to compare with: --against RUN" in messages


def test_the_base_is_a_variant_of_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    text = paths.MATRIX.read_text().replace(
        'relative_to = "fsync=false"', 'relative_to = "fsync=false"\ncompare_to = "nosuch"', 1
    )
    file.write_text(text)
    with pytest.raises(LabError, match=r"thread\.compare_to: expected a value of the axis variant"):
        matrix.read(file)
    file.write_text(text.replace("nosuch", "direct-io"))
    experiment = matrix.find(matrix.read(file), "thread")
    assert experiment.compare_to == "direct-io"
    assert matrix.with_variants(experiment, ("both", "direct-io")).compare_to == "direct-io"
    assert matrix.with_variants(experiment, ("both", "stock")).compare_to is None
