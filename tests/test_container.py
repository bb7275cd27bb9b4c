"""What the container image is made of and how its first process goes on; no engine needed."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wallab import paths
from wallab.command import entry
from wallab.errors import MachineError
from wallab.machine import container, provision
from wallab.record import series
from wallab.servers import builder, buildsystem, source
from wallab.servers.builder import Server
from wallab.servers.patches import patches_of

DOCKERFILE = (paths.LAB / "Dockerfile").read_text()


def stages() -> dict[str, str]:
    """The Dockerfile's stages by name."""
    parts = re.split(r"^FROM \S+ AS (\w+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_no_arguments_run_the_matrix() -> None:
    assert entry.command_line([]) == [str(paths.LAB / "scripts" / "run-matrix")]


def test_arguments_go_to_the_command() -> None:
    run = entry.command_line(["tabulate", "latest", "--format", "csv"])
    assert run == [str(paths.LAB / "scripts" / "tabulate"), "latest", "--format", "csv"]


def test_no_such_command() -> None:
    command = [sys.executable, "-m", "wallab.command.entry", "tabluate"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert "tabulate" in result.stderr


def test_image_that_measures_has_no_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WALLAB_IMAGE", "lab")
    monkeypatch.setattr(sys, "argv", ["entry", "test"])
    assert entry.main() == 3
    assert "--target builder" in capsys.readouterr().err


def test_first_process_hands_signals_on(tmp_path: Path) -> None:
    """The command's own exit code comes out, and what it left belongs to the folder's owner."""
    waiting = "import signal, sys, time\n" + (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    program = (
        "import sys; from wallab.command import entry\n"
        f"sys.exit(entry.run([sys.executable, '-c', {waiting!r}]))"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 130
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_results_belong_to_the_folders_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "samples.jsonl").write_text("")
    os.chown(tmp_path, 12345, 12346)
    entry.hand_results_over()
    for path in (tmp_path / "run", tmp_path / "run" / "samples.jsonl"):
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_command_gives_every_device() -> None:
    for device in container.DEVICES:
        assert f"--device {device} " in container.command()


def services() -> dict[str, list[str]]:
    """The services of compose.yaml -> what is said of each, line by line."""
    text = (paths.LAB / "compose.yaml").read_text()
    parts = re.split(r"^  (\w+):$", text.partition("\nvolumes:")[0], flags=re.MULTILINE)
    return {
        name: [line.strip() for line in lines.splitlines() if line.strip()]
        for name, lines in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_compose_gives_the_same_rights() -> None:
    given = services()["lab"]
    assert "cap_add: [SYS_ADMIN]" in given
    assert [line[2:] for line in given if line.startswith("- /dev/")] == list(container.DEVICES)
    assert "service: lab" in services()["patched"]


def test_what_was_patched_has_no_network_in_compose() -> None:
    assert "network_mode: none" in services()["patched"]


def test_what_builds_in_compose_has_no_rights() -> None:
    given = services()["builder"]
    assert "network_mode: none" in given
    assert 'security_opt: ["no-new-privileges:true"]' in given
    words = ("cap_add", "privileged", "devices", "- /dev/", "extends", "apparmor", "pid:", "ports")
    assert [line for line in given if line.startswith(words)] == []
    # Neither does it see what others made: its own servers alone are kept.
    assert [line for line in given if line.startswith("- ")] == ["- servers:/opt/wal-lab/build"]


def test_packages_of_a_setup_are_there_before_the_lab() -> None:
    """What the builder copies first is what the setup imports, and where it is."""
    for name in re.findall(r"wallab/\S+\.py", DOCKERFILE):
        assert (paths.LAB / name).is_file(), name
    assert "wallab/machine/provision.py wallab/machine/" in DOCKERFILE


def test_command_of_the_builder_keeps_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALLAB_IMAGE", "lab")
    assert container.command().endswith(f'-v "$PWD/results:{paths.RESULTS}" wal-lab')
    monkeypatch.setenv("WALLAB_IMAGE", "builder")
    words = f" -v wal-lab:{paths.BUILD} --network none wal-lab:builder"
    assert container.command().endswith(words)


@pytest.fixture
def in_image(
    servers: dict[str, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Server]:
    """The image's view: servers of two variants, and neither their source nor a compiler."""
    for name in ("stock", "both"):
        server = servers[name]
        copy = tmp_path / "build" / server.build.version / name
        copy.mkdir(parents=True)
        shutil.copy(server.path / "build.json", copy)
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setenv("WALLAB_IMAGE", "lab")
    monkeypatch.setenv("WALLAB_SOURCE", "18")
    monkeypatch.setenv("WALLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler
    return servers


def ask(variant: str) -> Server:
    """What a command of the image does to have a variant's server."""
    tree = source.resolve(source.default("17"))
    system = buildsystem.choose("auto", tree)
    patches = patches_of(series.read(), variant, tree)
    (server,) = builder.Builder(tree, system).build({variant: patches})
    return server


def test_image_uses_its_servers(in_image: dict[str, Server]) -> None:
    server = ask("both")
    assert not server.fresh
    assert server.build == in_image["both"].build


@pytest.mark.usefixtures("in_image")
def test_image_names_what_it_lacks() -> None:
    with pytest.raises(MachineError, match=r"this image has both, stock.*--target builder"):
        ask("committed")
    with pytest.raises(MachineError, match=r"source 15: this image has 18"):
        source.resolve("15")


def test_image_has_what_drives_take() -> None:
    """Programs of the setup's list, but for compilers and headers, are in the last stage too."""
    compiling = {"gcc", "meson", "ninja", "pkg-config"}
    groups = ("drive", "filesystems", "virtual")
    wanted = {name: probe for group in groups for name, probe in provision.PACKAGES[group].items()}
    for package, probe in wanted.items():
        if probe not in compiling:
            assert re.search(rf"\s{re.escape(package)}\s", stages()["lab"]), package


def test_image_has_the_kernel_and_the_python_of_virtual_machines() -> None:
    """Fetched where apt's lists are, and taken along."""
    assert "scripts/setup virtual" in stages()["builder"]
    taken = re.search(r"/wal-lab/virtual -maxdepth 1 \\\((.*?)\\\)", stages()["pruned"])
    assert taken is not None
    assert taken[1].split() == ["-name", "'kernel-*'", "-o", "-name", "'python-*'"]


def test_every_builder_knows_the_instructions() -> None:
    """hadolint, which scripts/test runs, does not know what the classic builder lacks."""
    assert not re.search(r"--mount|--link|--exclude|<<|^# *syntax", DOCKERFILE, re.MULTILINE)
