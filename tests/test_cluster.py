"""What a server says of itself, as the lab passes it on."""

from pathlib import Path
from unittest import mock

import pytest

from wallab.machine import process
from wallab.machine.confinement import Confinement
from wallab.servers.cluster import Cluster

LOG = """\
LOG:  starting PostgreSQL 18.6
FATAL:  the database system is starting up
LOG:  database system is ready to accept connections
PANIC:  could not write to file "000000010000000000000001" at offset 0: Input/output error
LOG:  server process (PID 42) was terminated by signal 6: Aborted
LOG:  terminating any other active server processes
FATAL:  the database system is in recovery mode
"""


def test_complaints_are_what_tells_of_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "own", lambda path: None)
    cluster = Cluster(
        tmp_path / "data", tmp_path / "wal", mock.Mock(folder=tmp_path), Confinement()
    )
    cluster.log.write_text(LOG)
    complaints = cluster.complaints().split("; ")
    assert [complaint.split()[0] for complaint in complaints] == ["PANIC:", "LOG:"]
    assert "Input/output error" in complaints[0]
    assert "was terminated by signal 6" in complaints[1]
    cluster.log.write_text("LOG:  database system is ready to accept connections\n")
    assert cluster.complaints() == ""
