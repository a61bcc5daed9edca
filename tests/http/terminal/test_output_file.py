"""Output files of commands."""

from __future__ import annotations

import stat
from pathlib import Path

from greenroom.http.terminal.streams import whole_file


def test_a_file_that_is_replaced_stays_as_private_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "transcript.txt"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
