"""An unusable database is reported at startup, before a request needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import structlog

from greenroom.actors.store.migrations import SET
from greenroom.http.settings.sources import BadSettingError
from greenroom.http.settings.start_checks import locate_database
from greenroom.schemas.settings.settings import Settings


def text(path: Path) -> None:
    path.write_text("Dear diary, " * 100)


def later_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table _sqlite_migrations (id, migration_set, name, applied_at)")
        database.execute("insert into _sqlite_migrations values (1, ?, 'with_wings', '')", (SET,))
        database.commit()


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


UNUSABLE = {
    text: "file is not a database",
    later_version: "a newer version of Greenroom has written it (it has 'with_wings')",
    Path.mkdir: "it is no file",
    below_a_file: "File exists",
}


@pytest.mark.parametrize(("make", "reason"), UNUSABLE.items())
def test_a_named_database_that_is_unusable_is_refused_and_the_usual_one_is_told(
    make: Callable[[Path], None], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = tmp_path / "greenroom" / "greenroom.db"
    path.parent.mkdir()
    make(path)
    with pytest.raises(BadSettingError) as refused:
        locate_database(Settings(db=str(path)))
    assert str(refused.value).startswith(f"db = '{path}': ")
    assert reason in str(refused.value)
    with structlog.testing.capture_logs() as logs:
        assert locate_database(Settings()).db == str(path)
    assert [(line["event"], line["log_level"]) for line in logs] == [("nothing can be stored", "warning")]
    assert reason in logs[0]["reason"]


def test_the_usual_database_lies_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with structlog.testing.capture_logs() as logs:
        settings = locate_database(Settings(port=1))
        assert locate_database(settings) == settings  # the file exists the second time
    assert settings == attrs.evolve(Settings(port=1), db=str(tmp_path / "greenroom" / "greenroom.db"))
    assert not logs


def test_only_a_database_in_memory_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert locate_database(Settings(db=":memory:")) == Settings(db=":memory:")
    assert not list(tmp_path.iterdir())
    assert locate_database(Settings(store_responses=False)).db == str(tmp_path / "greenroom/greenroom.db")
    assert (tmp_path / "greenroom" / "greenroom.db").is_file()
