"""All runs below a folder, and the page that lists them."""

from pathlib import Path
from urllib.parse import quote

from wallab.errors import LabError, MachineError
from wallab.files.digest import sha256
from wallab.record import manifest
from wallab.record.samples import SAMPLES
from wallab.results import tabulation
from wallab.results.entry import Damaged, Entry, entry
from wallab.results.export import listing

PAGE = "index.html"
REPORTS = ("report.html", "table.txt")
"""What an entry links to: the first of these that the run has."""


def of(folder: Path) -> tuple[list[Entry], list[Damaged]]:
    """Return the runs below the folder, the latest first, and those that cannot be read.

    LabError if it is no folder. What has neither of a run's two files is none.
    """
    if not folder.is_dir():
        raise LabError(f"{folder}: expected the folder that the runs are in, such as results")
    entries, damaged = [], []
    for run in sorted(folder.iterdir()):
        if not any((run / name).is_file() for name in (manifest.FILE, SAMPLES)):
            continue
        try:
            entries.append(_entry(run))
        except (LabError, OSError) as error:
            damaged.append(Damaged(run.name, str(error)))
    return sorted(entries, key=lambda entry: (entry.started, entry.name), reverse=True), damaged


def _entry(run: Path) -> Entry:
    results = tabulation.results_of(run)
    samples = run / SAMPLES
    report = next((name for name in REPORTS if (run / name).is_file()), "")
    return entry(
        run.name,
        # “./” makes a path of whatever the folder is called.
        f"./{quote(run.name)}/{report}" if report else "",
        results.plan,
        results.table,
        len(results.samples),
        sha256(samples) if samples.is_file() else "",
    )


def write(folder: Path) -> tuple[Path, list[Damaged]]:
    """Write the page that lists the folder's runs beside them; return it, and what is damaged.

    LabError if the folder has a page of that name that the lab did not make; MachineError where
    it cannot be written.
    """
    entries, damaged = of(folder)
    page = folder / PAGE
    try:
        if page.exists() and f'content="{listing.MARK}"' not in page.read_text(errors="replace"):
            raise LabError(f"{page} is not of the lab; move it away, or name another folder")
        page.write_text(listing.render(entries, damaged))
    except OSError as error:
        raise MachineError(f"{page}: {error.strerror}") from None
    return page, damaged
