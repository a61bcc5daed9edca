"""`greenroom keys` in processes of their own, on a database and beside a running server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx2
import pytest

from greenroom.http.process.runtime_file import running_servers
from greenroom.tests.support.servers.bounded_waits import PATIENCE
from greenroom.tests.support.servers.server_processes import run_greenroom, serving


def ask(address: str, path: str, secret: str = "", **headers: str) -> int:
    headers |= {"Authorization": f"Bearer {secret}"} if secret else {}
    return httpx2.get(f"{address}{path}", headers=headers, timeout=PATIENCE).status_code


def models(address: str, secret: str = "") -> int:
    return ask(address, "/v1/models", secret)


def becomes(address: str, secret: str, status: int) -> float:
    """Return the seconds until a request gets a status."""
    began = time.monotonic()
    while models(address, secret) != status:
        assert time.monotonic() < began + PATIENCE
    return time.monotonic() - began


@pytest.mark.deep
def test_keys_of_another_process_lock_open_and_end_on_a_running_server(tmp_path: Path) -> None:
    database = ("--db", str(tmp_path / "db"))
    with serving(*database) as server:
        assert models(server.address) == 200
        made = run_greenroom("keys", "add", "boss", "--admin", *database)
        assert made.returncode == 0, made.stderr
        boss = made.stdout.strip()
        took = [becomes(server.address, "", 401)]
        assert models(server.address, boss) == 200
        asked = run_greenroom("keys", "list", "--json", "--url", server.address, GREENROOM_API_KEY=boss)
        assert [json.loads(line)["name"] for line in asked.stdout.splitlines()] == ["boss"], asked.stderr
        [own] = (each for each in running_servers() if server.address in each.addresses)
        assert (models(server.address, own.key), own.key in str(own)) == (200, False)
        assert ask(server.address, "/admin/status", own.key) == 403  # since there is an admin key
        assert ask(server.address, "/v1/models", own.key, **{"X-Forwarded-For": "1.2.3.4"}) == 401
        assert run_greenroom("ps", "--url", server.address).returncode == 1
        assert run_greenroom("ps", "--url", server.address, GREENROOM_API_KEY=boss).returncode == 0
        revoked = run_greenroom("keys", "revoke", "boss", *database)
        assert (revoked.returncode, "every request is refused" in revoked.stderr) == (0, True)
        took.append(becomes(server.address, boss, 401))
        assert models(server.address) == 401
        assert run_greenroom("keys", "off", *database).returncode == 0
        took.append(becomes(server.address, "", 200))
    assert max(took) < PATIENCE
    assert boss.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_limits_and_dates_are_listed_and_bad_ones_are_usage_errors(tmp_path: Path) -> None:
    database = ("--db", str(tmp_path / "db"))
    limits = ("--requests-per-minute", "3", "--tokens-per-minute", "500", "--priority", "2")
    made = run_greenroom("keys", "add", "guest", "--model", "q*", *limits, "--expires", "7d", *database)
    assert made.returncode == 0, made.stderr
    line = run_greenroom("keys", "list", *database).stdout
    for word in ("guest", "until", "models: q*", "3 requests/min", "500 tokens/min", "priority 2"):
        assert word in line
    for expires, status in (("soon", 2), ("2001-01-01", 1), ("0d", 1)):
        refused = run_greenroom("keys", "add", "late", "--expires", expires, *database)
        assert (refused.returncode, refused.stdout) == (status, "")
        assert "Traceback" not in refused.stderr
    assert run_greenroom("keys", "add", "guest", *database).returncode == 1
    assert run_greenroom("keys", "revoke", "nobody", *database).returncode == 1


@pytest.mark.parametrize("asked", [pytest.param("server", marks=pytest.mark.deep), "database"])
def test_a_key_that_the_server_was_started_with_is_said_to_stay_open(asked: str, tmp_path: Path) -> None:
    database, file = ("--db", str(tmp_path / "db")), tmp_path / "key"
    assert "There are no keys" in run_greenroom("keys", "list", *database).stderr
    boss = run_greenroom("keys", "add", "boss", "--admin", *database).stdout.strip()
    run_greenroom("keys", "add", "guest", *database)
    file.write_text(boss)
    file.chmod(0o644)
    with serving("--api-key-file", str(file), *database) as server:
        assert [line["event"] for line in server.log if line["level"] == "warning"] == [
            "key file is open to others"
        ]
        named = run_greenroom("keys", "revoke", "guest", *database)
        assert named.stderr == "guest is revoked. Requests still need a key; open: boss.\n"
        place = ("--url", server.address) if asked == "server" else database
        stays = run_greenroom("keys", "revoke", "boss", *place, GREENROOM_API_KEY=boss)
        assert (stays.returncode, f"stays open at {server.address}" in stays.stderr) == (1, True), (
            stays.stderr
        )
        off = run_greenroom("keys", "off", *database)
        assert f"the server at {server.address} still needs a key" in off.stderr
        assert models(server.address, boss) == 200


@pytest.mark.deep
def test_the_key_of_commands_is_no_key_of_the_server(tmp_path: Path) -> None:
    database = ("--db", str(tmp_path / "db"))
    with serving(*database, GREENROOM_API_KEY="commands") as server:
        assert models(server.address) == 200
        assert "no request needs a key" in [line["event"] for line in server.log]
    with serving(*database, GREENROOM_SERVER_API_KEY="servers") as server:
        assert [models(server.address, secret) for secret in ("", "commands", "servers")] == [401, 401, 200]
