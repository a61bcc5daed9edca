"""`greenroom doctor` in a process of its own, on this machine and on broken ones."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import threading
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from packaging.requirements import Requirement

from greenroom.actors.store.connection import Connection
from greenroom.actors.store.database_file import default_path
from greenroom.http.commands.doctor import check_descriptors, check_device, check_models, check_versions
from greenroom.schemas.models.model_description import MachineReport
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import fetch
from greenroom.tests.support.servers.http_servers import serving as serving_here
from greenroom.tests.support.servers.localhost_certificate import CERTIFICATE, KEY
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

HEALTHY = ("--port", "0", "--db", ":memory:")


def wrong(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the texts of what is wrong, by subject; the exit status must tell the same."""
    assert done.stderr == ""
    lines = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
    assert done.returncode == bool(lines), done.stdout
    return {line[6:20].strip(): line[20:] for line in lines}


def test_this_machine_is_well(tiny_model: TinyModel) -> None:
    done = run_greenroom("doctor", str(tiny_model("qwen3")), *HEALTHY)
    assert wrong(done) == {}
    subjects = [line[6:20].strip() for line in done.stdout.splitlines() if line.startswith("ok")]
    assert subjects == [
        *("greenroom", "python", "system", "libraries", "device", "memory", "descriptors"),
        *("hub cache", "database", "uploads", "port", "settings", "models"),
    ]
    assert done.stdout.endswith("\nAll is well.\n")


@pytest.mark.parametrize("broken", ["file", *deep_only("below a file", "dangling link")])
def test_a_broken_cache_folder_is_wrong(broken: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    if broken == "dangling link":
        cache.symlink_to(tmp_path / "nowhere")
    else:
        cache.write_text("no folder")
    folder = cache / "hub" if broken == "below a file" else cache
    done = run_greenroom(
        "doctor", *HEALTHY, "--prefix-cache-dir", str(folder / "prefixes"), HF_HUB_CACHE=str(folder)
    )
    found = wrong(done)
    assert found.keys() == {"hub cache", "prefix cache"}
    assert found["hub cache"].startswith(f"{folder}: cannot be read and written (")
    assert done.stdout.endswith("\n2 things are wrong.\n")


def test_a_database_that_no_server_can_use_is_wrong(tmp_path: Path) -> None:
    newer, text = tmp_path / "newer.db", tmp_path / "text.db"
    Connection(str(newer)).close()
    with closing(sqlite3.connect(newer)) as database, database:
        row = ("greenroom", "with_wings", "")
        database.execute(
            "insert into _sqlite_migrations (migration_set, name, applied_at) values (?, ?, ?)", row
        )
    text.write_text("no database " * 1_000)
    for file, why in (
        (newer, "a newer version of Greenroom has written it"),
        (text, "file is not a database"),
    ):
        found = wrong(run_greenroom("doctor", *HEALTHY, "--db", str(file)))
        assert found.keys() == {"database"}
        assert why in found["database"]


def test_no_folder_is_created(tmp_path: Path) -> None:
    folders = tmp_path / "cache", tmp_path / "data"
    done = run_greenroom(
        "doctor",
        *(
            "--port",
            "0",
            "--prefix-cache-dir",
            str(folders[0] / "prefixes"),
            "--db",
            str(folders[1] / "a.db"),
        ),
        HF_HUB_CACHE=str(folders[0]),
    )
    assert wrong(done) == {}
    assert done.stdout.count("not there yet") == 3
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\n[", *deep_only(b"220 mail\r\n")])
def test_a_port_in_use_by_another_program_is_wrong(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def flood() -> None:
            with other.accept()[0] as client, suppress(OSError):
                while True:
                    client.sendall(answer * 1_000)

        threading.Thread(target=flood, daemon=True).start()
        port = str(other.getsockname()[1])
        found = wrong(run_greenroom("doctor", "--port", port, "--db", ":memory:"))
    assert found == {"port": f"localhost:{port} is in use by another program: use --port"}


@pytest.mark.parametrize("usable", [True, False])
async def test_a_running_server_is_asked_for_its_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable: bool
) -> None:
    for variable in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    if not usable:
        default_path().parent.parent.mkdir(parents=True, exist_ok=True)
        default_path().parent.touch()  # where a folder should be
    settings = Settings(db=str(default_path()), shutdown_timeout=20.0)
    async with serving_here(settings) as served:
        stored = await fetch(served.server, "POST", "/v1/conversations", {})
        place = "--host", "127.0.0.1", "--port", str(served.server.port)
        done = await trio.to_thread.run_sync(partial(run_greenroom, "doctor", *place, "--db", ":memory:"))
    assert f"port          127.0.0.1:{served.server.port} is in use by greenroom " in done.stdout
    found = wrong(done)
    assert found.keys() == (set() if stored.status == 200 else {"server"})
    assert (stored.status == 200) is usable


@pytest.mark.parametrize("secured", deep_only("key", "tls", "socket", "supervised"))
def test_the_own_server_is_known_however_it_is_secured(
    secured: str, tiny_model: TinyModel, tmp_path: Path
) -> None:
    for name, content in (("key", "a-key"), ("certificate", CERTIFICATE + KEY)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "broken")
    (folder / "config.json").write_text('{"model_type": "no_such_model"}')
    options = {
        "key": ("--api-key-file", str(tmp_path / "key")),
        "tls": ("--tls-certificate", str(tmp_path / "certificate")),
        "socket": ("--listen", f"unix:{tmp_path}/s"),
        "supervised": ("--supervised",),
    }[secured]
    with serving(str(folder), *options, "--db", ":memory:", only_json=False) as server:
        key = {"GREENROOM_API_KEY": "a-key"} if secured == "key" else {}
        chat = run_greenroom("load", "broken", "--url", server.address, **key)
        assert chat.returncode == 1, chat.stdout
        place = ("--host", "127.0.0.1", "--port", server.address.rpartition(":")[2], "--db", ":memory:")
        same = () if secured == "supervised" else options
        done = run_greenroom("doctor", *place, *same, **key)
        assert " is in use by greenroom " in done.stdout
        assert "no_such_model" in wrong(done)["server"]
        if secured == "key":
            without = run_greenroom("doctor", *place, *same)
            assert (without.returncode, "Put an admin key into" in without.stdout) == (0, True), (
                without.stdout
            )


def test_a_model_that_cannot_be_loaded_is_wrong_and_its_name_cannot_paint_the_terminal(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "evil\x1b[31m\nok    device")
    (folder / "config.json").write_text('{"model_type": "no_such_model"}')
    whole = str(tiny_model("llama"))
    done = run_greenroom("doctor", whole, str(folder), *HEALTHY)
    found = wrong(done)
    assert found.keys() == {"model"}
    assert "no_such_model" in found["model"]
    assert "\x1b" not in done.stdout


def test_a_named_folder_that_does_not_fit_is_wrong_and_others_are_not(tmp_path: Path) -> None:
    rows = [
        {"id": name, "folder": str(tmp_path / name), "problem": None, "fits": False, "least_bytes": 9_000_000}
        for name in ("named", "other")
    ]
    told = list(check_models(rows, (f"{tmp_path}/named/",), tmp_path / "hub"))
    assert [each.wrong for each in told] == [True, False, False]
    assert told[0].text == "named: needs at least 9.0 MB, more than models may have"


def test_a_crash_of_mlx_is_a_finding_and_the_others_follow(tmp_path: Path) -> None:
    fake = tmp_path / "mlx"
    fake.mkdir()
    (fake / "core.py").write_text("import os\nos.abort()\n")
    done = run_greenroom("doctor", *HEALTHY, PYTHONPATH=str(tmp_path))
    assert wrong(done)["device"] == "it ended with status -6"
    assert "\nok    models " in done.stdout


def test_versions_that_were_not_tested_are_wrong() -> None:
    lines = ("trio>=0.35", "mlx>=0.32,<0.33", "gone>=1", "absent>=1; extra == 'cuda'", "old<1; extra == 'x'")
    asked = [Requirement(line) for line in lines]
    found = {"trio": "0.35.0", "mlx": "0.33.1", "gone": None, "absent": None, "old": "2"}
    told = list(check_versions(asked, found))
    assert all(each.wrong for each in told)
    assert [each.text.split(":")[0] for each in told] == ["mlx 0.33.1 was not tested", "gone is missing"]


def test_more_memory_or_connections_than_there_are_is_wrong() -> None:
    report = MachineReport("gpu", 8_000_000_000, 6_800_000_000)
    [_, memory] = check_device(Settings(memory_bytes=9_000_000_000), report)
    assert memory.wrong
    assert memory.text.startswith("models may have 9.0 GB of 8.0 GB")
    [device, memory] = check_device(Settings(), report)
    assert not device.wrong
    assert not memory.wrong
    [descriptors] = check_descriptors(Settings(max_connections=100_000_000))
    assert descriptors.wrong
