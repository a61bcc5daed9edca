"""Admission by the settings: keys of files, open loopback, other machines' addresses, and wrong keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock
from werkzeug.datastructures import Headers

from greenroom.http.guard.keys import MOST_A_MINUTE, MOST_SLOWED, SLOW_SECONDS, Door, Head, KeyRing, WrongKeys
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.caller import Caller, KeyRecord, digest_of
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, fetch
from greenroom.tests.support.servers.http_servers import serving as serving_here
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

MODELS = "/v1/models"


async def status(served: Served, path: str = MODELS, **headers: str) -> int:
    return (await fetch(served.server, "GET", path, **headers)).status


async def test_the_key_of_a_file_opens_and_a_bad_file_is_a_bad_setting(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a-key-of-a-file\n")
    async with serving_here(Settings(api_key_file=str(file), shutdown_timeout=20.0)) as served:
        assert await status(served) == 401
        assert await status(served, x_api_key="a-key-of-a-file") == 200
    for content in ("", "two words", "x" * 5_000, "line\nline"):
        file.write_text(content)
        refused = run_greenroom("serve", "--port", "0", "--api-key-file", str(file))
        assert refused.returncode == 2, refused.stderr
        assert "api_key_file" in refused.stderr
        assert "Traceback" not in refused.stderr
    missing = run_greenroom("serve", "--port", "0", "--api-key-file", str(tmp_path / "none"))
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)


async def test_open_loopback_needs_no_key_but_for_operators_and_what_was_forwarded() -> None:
    settings = Settings(api_key="a-key", open_loopback=True, shutdown_timeout=20.0)
    async with serving_here(settings) as served:
        assert await status(served) == 200
        assert await status(served, "/admin/models") == 403
        assert await status(served, "/metrics") == 403
        assert await status(served, "/admin/models", x_api_key="a-key") == 200
        for headers in ({"x_forwarded_for": "1.2.3.4"}, {"forwarded": "for=1.2.3.4"}, {"via": "1.1 proxy"}):
            assert await status(served, **headers) == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_addresses_of_other_machines_need_a_key(host: str, tmp_path: Path) -> None:
    database = ("--db", str(tmp_path / "db"))
    refused = run_greenroom("serve", "--port", "0", "--host", host, *database)
    assert refused.returncode == 2
    for word in ("host", host, "greenroom keys add", "--insecure"):
        assert word in refused.stderr
    assert run_greenroom("keys", "add", "boss", *database).returncode == 0
    with serving("--host", host, *database) as server:
        assert server.address


def test_insecure_lets_everybody_in_on_every_address() -> None:
    with serving("--host", "0.0.0.0", "--insecure") as server:
        assert server.address


def test_wrong_keys_are_slowed_after_twenty_a_minute_by_address() -> None:
    wrong = WrongKeys()
    found = [wrong.record("1.2.3.4", 100.0 + second) for second in range(MOST_A_MINUTE + 1)]
    assert found == [*[None] * MOST_A_MINUTE, 40]
    assert wrong.record("5.6.7.8", 120.0) is None
    assert wrong.record("1.2.3.4", 160.0) is None


async def test_a_guesser_is_told_to_wait_and_a_right_key_still_opens() -> None:
    async with serving_here(Settings(api_key="a-key", shutdown_timeout=20.0)) as served:
        for _ in range(MOST_A_MINUTE):
            assert await status(served, x_api_key="guess") == 401
        assert await status(served, x_api_key="guess") == 429
        assert await status(served, x_api_key="a-key") == 200


async def test_few_answers_to_wrong_keys_are_held_at_once(autojump_clock: MockClock) -> None:
    door = Door(KeyRing([KeyRecord("key", digest_of("a-key"), Caller("key_1"), created=0.0)]))
    head = Head("GET", MODELS, Headers({"Host": "localhost", "x-api-key": "guess"}), "1.2.3.4")
    seconds = []

    async def guess() -> None:
        began = trio.current_time()
        with pytest.raises(ProblemError):
            await door.admit(head)
        seconds.append(trio.current_time() - began)

    for _ in range(MOST_A_MINUTE):
        await guess()
    del seconds[:]
    async with trio.open_nursery() as nursery:
        for _ in range(3 * MOST_SLOWED):
            nursery.start_soon(guess)
    assert [round(each, 3) for each in seconds] == [0.0] * 2 * MOST_SLOWED + [SLOW_SECONDS] * MOST_SLOWED
