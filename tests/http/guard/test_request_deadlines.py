"""Time limits of requests: a 504 before the answer, the protocol's error event amid it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from greenroom.http.guard.request_deadlines import parse_request_timeouts
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.guard.test_revoked_streams import STREAMS
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import connected, fetch, serving
from greenroom.tests.support.servers.server_processes import run_greenroom


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that runs in real time and can jump."""
    return MockClock(rate=1.0)


async def test_an_overdue_answer_is_504_or_ends_with_an_error_in_every_protocol(
    tiny_model: TinyModel, tmp_path: Path, clock: MockClock
) -> None:
    settings = Settings(
        models=(str(tiny_model("qwen3")),),
        request_timeout=tuple(f"{path}=300" for path in STREAMS),
        db=str(tmp_path / "db"),
        shutdown_timeout=60.0,
    )
    begun: list[str] = []
    with capture_logs() as logs:
        async with serving(settings) as served:

            async def follow(path: str, streams: bool) -> None:
                body, first, error = STREAMS[path]
                async with connected(served.server, 600) as client:
                    await client.request("POST", path, json.dumps({**body, "stream": streams}).encode())
                    if streams:
                        await client.read_until(first)
                        begun.append(path)
                        await client.read_until(error)
                        return
                    answer = await client.receive_response()
                assert answer.status == 504, (path, answer.body)
                assert answer.headers["x-should-retry"] == "false"
                assert b"longer than the 300 s" in answer.body

            async def requests() -> Any:
                return (await fetch(served.server, "GET", "/admin/requests")).json()["requests"]

            async def all_run() -> bool:
                running = [each for each in await requests() if each["state"] == "running"]
                return len(begun) == len(STREAMS) and len(running) == 2 * len(STREAMS)

            async with trio.open_nursery() as nursery:
                for path in STREAMS:
                    nursery.start_soon(follow, path, True)
                    nursery.start_soon(follow, path, False)
                await eventually(all_run)
                clock.jump(300)
            rows: Any = []
            while len(rows) < 2 * len(STREAMS):
                page = await fetch(served.server, "GET", "/admin/audit?ending=timed_out&limit=100")
                rows = page.json()["requests"]

            async def none_is_left() -> bool:
                return not await requests()

            await eventually(none_is_left)
    late = [line for line in logs if line.get("problem") == "request_timeout"]
    told = [line["path"] for line in late if "path" in line]
    assert sorted(told) == sorted([*STREAMS, *STREAMS])
    # The model's line is the only other one, and has the figures.
    ends = [line for line in logs if line["event"] in ("request failed", "request finished")]
    assert {line["request_id"] for line in ends} == {row["id"] for row in rows}
    assert [line["problem"] for line in ends] == ["request_timeout"] * len(rows)
    assert all(line["generated_tokens"] is not None for line in ends)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions/", "application/json"),
        ("/v1/messages", "application/json"),
        ("/v1/audio/transcriptions", "multipart/form-data; boundary=b"),
    ],
)
async def test_an_upload_that_stalls_ends_with_the_time_of_its_request(path: str, kind: str) -> None:
    settings = Settings(request_timeout=(f"{path.rstrip('/')}=0.3",), db=":memory:", shutdown_timeout=60.0)
    with capture_logs() as logs:
        async with serving(settings) as served, connected(served.server) as client:
            await client.request("POST", path, b"--b\r\n", content_length="1000", content_type=kind)
            answer = await client.receive_response()
    assert (answer.status, answer.headers["x-should-retry"]) == (504, "false")
    assert b"longer than the 0.3 s" in answer.body
    [line] = [line for line in logs if line.get("problem") == "request_timeout"]
    assert (line["event"], line["path"], line["status"]) == ("request answered", path, 504)


def test_limits_are_of_one_route_or_of_all_others() -> None:
    assert parse_request_timeouts(["30", "/v1/embeddings=2.5"]) == {"*": 30.0, "/v1/embeddings": 2.5}
    for wrong in ("", "soon", "0", "-1", "inf", "nan", "v1=2", "=2", "/v1/embeddings="):
        with pytest.raises(ValueError, match="must be SECONDS"):
            parse_request_timeouts([wrong])


def test_a_bad_limit_is_a_bad_setting() -> None:
    refused = run_greenroom("serve", "--port", "0", "--request-timeout", "soon")
    assert refused.returncode == 2
    assert "request_timeout = 'soon'" in refused.stderr
