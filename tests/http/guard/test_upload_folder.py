"""The folder of uploads is private to this user, whatever others put in its place."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from greenroom.http.guard.multipart_forms import SpooledFile, UploadFolder

MAX_BYTES = 4096
NAME = f"greenroom-uploads-{os.getuid()}"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return this test's own folder for temporary files."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_files_of_a_server_that_was_killed_are_removed(temporary: Path) -> None:
    folder = UploadFolder(MAX_BYTES).path()
    gone = next(process for process in range(4_000_000, 1, -1) if not psutil.pid_exists(process))
    for name in (f"{gone}-left", f"{os.getpid()}-ours", "notes.txt"):
        (folder / name).touch()
    assert UploadFolder(MAX_BYTES).path() == folder == temporary / NAME
    assert {file.name for file in folder.iterdir()} == {f"{os.getpid()}-ours", "notes.txt"}


def test_a_folder_that_others_could_have_made_is_not_used(temporary: Path) -> None:
    (temporary / NAME).mkdir(mode=0o777)
    (temporary / NAME).chmod(0o777)
    folder = UploadFolder(MAX_BYTES).path()
    assert folder.name != NAME
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("target", ["others", "nowhere", "file"])
def test_a_link_in_its_place_is_not_followed(temporary: Path, target: str) -> None:
    uploads = UploadFolder(MAX_BYTES)
    uploads.path().rmdir()
    (temporary / "others").mkdir(mode=0o700)
    (temporary / "file").touch()
    (temporary / NAME).symlink_to(temporary / target)
    with ExitStack() as resources:
        file = SpooledFile(uploads, resources)
        folder = file.path.parent
        assert folder == uploads.path()
        assert folder.name != NAME
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
    assert not any((temporary / "others").iterdir())
    assert (temporary / NAME).is_symlink()


def test_a_file_is_made_though_the_folder_goes_that_moment(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system deletes temporary folders just after the folder was checked."""
    uploads = UploadFolder(MAX_BYTES)
    look, looks = uploads.path, list[Path]()

    def look_and_lose() -> Path:
        looks.append(look())
        if len(looks) == 1:
            shutil.rmtree(looks[0])
        return looks[-1]

    monkeypatch.setattr(uploads, "path", look_and_lose)
    with ExitStack() as resources:
        assert SpooledFile(uploads, resources).path.parent == temporary / NAME
    assert len(looks) == 2
