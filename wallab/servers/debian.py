"""PostgreSQL's upstream tarballs from Debian's source packages.

The orig tarball of a Debian source package is upstream's, byte for byte, and apt verifies it by
the archive's signature. The machine's own apt configuration is read for the archive's address
and key, and left alone: everything happens below a folder of the lab's.
"""

import re
import shutil
import subprocess
from pathlib import Path

SUITES = ("bookworm", "trixie", "forky", "sid")


class NotInDebian(Exception):
    """Debian's archive cannot be asked from here, or does not hold the package."""


def _stanzas(text: str) -> list[dict[str, str]]:
    """Split a deb822 file into stanzas of lower-case keys; comments are dropped."""
    stanzas: list[dict[str, str]] = [{}]
    key = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
        elif line[0].isspace():
            stanzas[-1][key] = f"{stanzas[-1].get(key, '')} {line.strip()}"
        else:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            stanzas[-1][key] = value.strip()
    return [stanza for stanza in stanzas if stanza]


def archives(etc: Path = Path("/etc/apt")) -> list[tuple[str, str]]:
    """Return the machine's Debian archives as (address, options of a one-line entry).

    Only entries whose suite is one of Debian's count; security and updates are other archives.
    """
    addresses: list[tuple[str, str]] = []
    parts = etc / "sources.list.d"
    for file in sorted(parts.glob("*.sources")):
        for stanza in _stanzas(file.read_text(errors="replace")):
            suites = stanza.get("suites", "").split()
            if not any(suite in (*SUITES, "stable", "testing", "unstable") for suite in suites):
                continue
            signed = stanza.get("signed-by", "")
            options = f"[signed-by={signed}]" if signed.startswith("/") else ""
            addresses += [(address, options) for address in stanza.get("uris", "").split()]
    entry = re.compile(r"^\s*deb(?:-src)?\s+(\[[^\]]*\])?\s*(\S+)\s+(\S+)\s", re.MULTILINE)
    for file in [etc / "sources.list", *sorted(parts.glob("*.list"))]:
        if not file.is_file():
            continue
        for options, address, suite in entry.findall(file.read_text(errors="replace")):
            if suite in (*SUITES, "stable", "testing", "unstable"):
                key = re.search(r"signed-by=(\S+?)[\s\]]", options)
                addresses.append((address, f"[signed-by={key[1]}]" if key else ""))
    return list(dict.fromkeys(addresses))


def apt(home: Path, *command: str) -> str:
    """Run an apt tool on the private configuration; NotInDebian with its message if it fails."""
    result = subprocess.run(
        command,
        cwd=home,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C",
            "APT_CONFIG": str(home / "apt.conf"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("E:")]
        raise NotInDebian(errors[0] if errors else result.stderr.strip()[-300:])
    return result.stdout


def configure(home: Path, entries: list[str]) -> None:
    """Write apt's configuration below home, which shares nothing that apt writes."""
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / "sources.list").write_text("\n".join(entries) + "\n")
    (home / "apt.conf").write_text(
        f'Dir::State::lists "{home}/lists";\n'
        f'Dir::Cache "{home}/cache";\n'
        f'Dir::Etc::sourcelist "{home}/sources.list";\n'
        f'Dir::Etc::sourceparts "{home}/parts";\n'
        'APT::Sandbox::User "root";\n'
    )


def _versions(listing: str) -> list[str]:
    """Return the versions of a showsrc listing, newest first; apt cannot fetch those with a ~."""
    versions = re.findall(r"^Version: (\S+)$", listing, re.MULTILINE)

    def upstream(version: str) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", version.rsplit("-", 1)[0]))

    return sorted((v for v in set(versions) if "~" not in v), key=upstream, reverse=True)


def fetch(major: int, folder: Path) -> Path:
    """Fetch the newest tarball of the major version into the folder, and return it.

    Raises NotInDebian where that cannot be done.
    """
    if not shutil.which("apt-get"):
        raise NotInDebian("this machine has no apt")
    entries = archives()
    if not entries:
        raise NotInDebian("no Debian archive stands in apt's sources")
    home = folder / "apt"
    shutil.rmtree(home, ignore_errors=True)
    address, options = entries[0]
    try:
        configure(home, [f"deb-src {options} {address} {suite} main" for suite in SUITES])
        apt(home, "apt-get", "-qq", "update")
        name = f"postgresql-{major}"
        versions = _versions(apt(home, "apt-cache", "showsrc", "--only-source", name))
        if not versions:
            raise NotInDebian(f"no version of {name}")
        apt(
            home,
            "apt-get",
            "-qq",
            "source",
            "--download-only",
            "--only-source",
            f"{name}={versions[0]}",
        )
        tarballs = [*home.glob(f"{name}_*.orig.tar.*")]
        tarballs = [file for file in tarballs if not file.name.endswith(".asc")]
        if len(tarballs) != 1:
            raise NotInDebian(f"{len(tarballs)} tarballs in {name} {versions[0]}")
        upstream = tarballs[0].name.split("_", 1)[1].split(".orig", 1)[0]
        kept = folder / f"postgresql-{upstream}.tar{tarballs[0].suffix}"
        tarballs[0].replace(kept)
        return kept
    finally:
        shutil.rmtree(home, ignore_errors=True)
