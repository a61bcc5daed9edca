"""Two Greenrooms: what one answers through the other is what it answers itself, on every protocol."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import structlog
import trio
from rich.console import Console

from greenroom.http.commands.doctor import check_remotes
from greenroom.http.commands.operate import _remote_models, tables
from greenroom.schemas.settings.remotes import Remote, Route
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.hostile import sounds
from greenroom.tests.support.servers.bounded_waits import PATIENCE
from greenroom.tests.support.servers.far_servers import Script, answering, models, standing_in
from greenroom.tests.support.servers.free_port import free_port
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving
from greenroom.tests.support.servers.server_processes import failing
from greenroom.tests.support.servers.server_processes import serving as server_process
from greenroom.tests.support.spoiled.spoiled_kinds import BODIES, FORMS, MAKERS, form_request

_CHANGES = (
    "id",
    "created",
    "created_at",
    "completed_at",
    "timings",
    "item_id",
    "model",
    "system_fingerprint",
)
_COUNTED = (
    *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "output_tokens_details"),
    *("prompt_tokens_details", "cache_creation_input_tokens", "cache_read_input_tokens", "input_tokens"),
    "temperature",
)
"""Times, what depends on the requests before, and what only the far side resolves."""


@attrs.frozen
class House:
    """A Greenroom with models, and one that has them from the first."""

    far: Served
    near: Served

    async def both(self, path: str, body: Any, model: str, **headers: str) -> tuple[RawResponse, RawResponse]:
        """Return the answers of the first one, asked directly and through the other."""
        asked = [
            await fetch(served.server, "POST", path, _with_model(body, name), **headers)
            for served, name in ((self.far, model), (self.near, f"studio/{model}"))
        ]
        return asked[0], asked[1]


def _with_model(body: Any, name: str) -> Any:
    if isinstance(body, bytes):
        return body.replace(b"MODEL", name.encode())
    return {**body, "model": name}


@asynccontextmanager
async def house(*folders: Path, **settings: Any) -> AsyncIterator[House]:
    async with serving(Settings(models=tuple(map(str, folders)), shutdown_timeout=60.0)) as far:
        remotes = (("studio", Remote(far.server.address, "greenroom")),)
        async with serving(Settings(remotes=remotes, shutdown_timeout=60.0, **settings)) as near:
            yield House(far, near)


def plain(found: Any) -> Any:
    """Return JSON without what differs between two answers to the same request."""
    if isinstance(found, dict):
        left_out = (*_CHANGES, *_COUNTED)
        return {name: plain(value) for name, value in found.items() if name not in left_out}
    return [plain(each) for each in found] if isinstance(found, list) else found


def text_of(response: RawResponse) -> str:
    """Return the text of a stream of chunks."""
    assert response.status == 200, response.body
    events = [line[6:] for line in response.body.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for each in events for choice in json.loads(each).get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"n": {"enum": [3]}}, "required": ["n"]},
            "strict": True,
        },
    }
]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two answers": {"n": 2, "temperature": 0.7, "seed": 3},
    "log-probabilities": {"logprobs": True, "top_logprobs": 2},
    "a schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "max_tokens": 40,
    },
    "a call": {"tools": TOOLS, "tool_choice": "required", "max_tokens": 80},
    "a pattern": {"guided_regex": "[0-9]{3}", "max_tokens": 20},
    "a limit": {"max_tokens": 2},
}


@pytest.mark.parametrize("names", [("plain", "a call"), pytest.param(tuple(CHATS), marks=pytest.mark.deep)])
async def test_chats_and_raw_text_are_answered_as_by_the_far_side_itself(
    names: tuple[str, ...], tiny_model: Callable[..., Path]
) -> None:
    question = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 12, "temperature": 0}
    async with house(tiny_model("qwen3")) as each:
        for name in names:
            extra = CHATS[name]
            body = {**question, **extra}
            direct, through = await each.both("/v1/chat/completions", body, "qwen3")
            assert through.status == direct.status == 200, (name, through.body)
            assert plain(through.json()) == plain(direct.json()), name
            assert through.headers["x-greenroom-backend"] == "studio"
            if "n" not in extra:
                streamed = await each.both("/v1/chat/completions", {**body, "stream": True}, "qwen3")
                assert text_of(streamed[0]) == text_of(streamed[1]), name
        raw = {"prompt": "Once upon", "max_tokens": 5, "temperature": 0}
        direct, through = await each.both("/v1/completions", raw, "qwen3")
        assert plain(through.json()) == plain(direct.json())
        for path, further in (
            ("/v1/messages", question),
            ("/v1/responses", {"input": "Hello", "store": False, "max_output_tokens": 8}),
            ("/v1/responses", {"input": "Hello", "max_output_tokens": 8}),
        ):
            direct, through = await each.both(path, further, "qwen3")
            assert through.status == 200, through.body
            assert through.headers["x-greenroom-backend"] == "studio"
            assert plain(through.json()).keys() == plain(direct.json()).keys()


_DEAR = pytest.mark.deep


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("embeds", "ranks") else _DEAR) for kind in BODIES]
)
async def test_other_kinds_are_answered_as_by_the_far_side_itself(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / kind
    folder.mkdir()
    MAKERS[kind](folder)
    async with house(folder) as each:
        for path, body in BODIES[kind][-1:] if kind == "speaks" else BODIES[kind]:
            direct, through = await each.both(path, body, kind)
            assert through.status == direct.status == 200, (path, through.body)
            assert through.headers["x-greenroom-backend"] == "studio"
            if through.headers["content-type"] == "application/json":
                assert plain(through.json()) == plain(direct.json()), path


@_DEAR
async def test_recordings_are_transcribed_as_by_the_far_side_itself(tmp_path: Path) -> None:
    folder = tmp_path / "hears"
    folder.mkdir()
    MAKERS["hears"](folder)
    async with house(folder) as each:
        for path, fields in FORMS:
            request = form_request(path, {**fields, "model": "MODEL"}, sounds.tone(0.2))
            direct, through = await each.both(path, request.body, "hears", content_type=request.content_type)
            assert through.status == direct.status == 200, (path, through.body)


async def test_the_far_models_are_listed_with_where_they_live(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    # A folder whose name is that of a remote's model is not listed beside it.
    shutil.copytree(tiny_model("qwen3"), tmp_path / "studio" / "qwen3")
    async with house(tiny_model("qwen3"), model_dir=(str(tmp_path),)) as each:

        async def is_listed() -> bool:
            await trio.lowlevel.checkpoint()
            return bool(each.near.system.remotes.servers["studio"].models)

        await eventually(is_listed)
        found = (await fetch(each.near.server, "GET", "/v1/models")).json()["data"]
        [there] = [model for model in found if model["id"] == "studio/qwen3"]
        assert there["architecture"] == "remote (greenroom)"
        one = (await fetch(each.near.server, "GET", "/v1/models/studio/qwen3")).json()
        assert (one["owned_by"], one["type"]) == ("studio", "text")
        assert one["context_length"] > 0
        status = (await fetch(each.near.server, "GET", "/admin/status")).json()
        assert [remote["models"] for remote in status["remotes"]] == [["studio/qwen3"]]
        assert next(iter(_remote_models(status["remotes"], [])))["id"] == "studio/qwen3"
        shown = io.StringIO()
        look = {"models": [], "requests": [], "mcp": [], "remotes": status["remotes"]}
        Console(file=shown, width=120).print(tables(look))
        assert re.search(r"studio +closed +1 +0 +0 +0", shown.getvalue())
        # A hop is the only one: the far side's own remotes are not asked for it.
        hop = await fetch(
            each.near.server,
            "POST",
            "/v1/chat/completions",
            {"model": "studio/qwen3", "messages": [{"role": "user", "content": "Hi"}]},
            x_greenroom_hop="1",
        )
        assert (hop.status, hop.json()["error"]["code"]) == (403, "may_not_leave")
        metrics = (await fetch(each.near.server, "GET", "/metrics")).body.decode()
        assert "greenroom:requests_left_total 0.0" in metrics
        assert 'greenroom:remote_state{remote="studio",state="closed"} 1.0' in metrics


CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "include_explain": True}


async def ask(served: Served, model: str, **headers: str) -> RawResponse:
    return await fetch(served.server, "POST", "/v1/chat/completions", {**CHAT, "model": model}, **headers)


async def test_a_keys_requests_stay_here_and_the_audit_tells_who_answered(
    tiny_model: Callable[..., Path],
) -> None:
    folder = tiny_model("qwen3")
    routes = (("smart", Route(("studio/qwen3", "qwen3"))),)
    async with house(folder, models=(str(folder),), routes=routes, db=":memory:") as each:
        secrets: dict[str, str] = {}
        for name, rights in (("boss", {"admin": True}), ("home", {"local_only": True}), ("guest", {})):
            headers = {"x_api_key": secrets["boss"]} if secrets else {}
            body = {"name": name, **rights}
            made = await fetch(each.near.server, "POST", "/admin/keys", body, **headers)
            secrets[name] = made.json()["secret"]
        wanted = [
            ("home", "studio/qwen3", 403, None),
            ("home", "smart", 200, "local"),
            ("guest", "smart", 200, "studio"),
        ]
        chosen: list[str] = []
        sent = each.near.system.remotes.servers["studio"]
        for name, model, status, backend in wanted:
            before = sent.requests
            with structlog.testing.capture_logs() as logs:
                answer = await ask(each.near, model, x_api_key=secrets[name])
                explained = (answer.json().get("usage") or {}).get("greenroom", {})
                told = explained.get("chosen", "")
                assert ("prefix" in explained) == ("cached_tokens" in explained) == (backend == "local")

                async def is_logged(seen: list[Any] = logs, status: int = status) -> bool:
                    await trio.lowlevel.checkpoint()
                    return status != 200 or any("chosen" in line for line in seen)

                await eventually(is_logged)
            of_log = {line["chosen"] for line in logs if "chosen" in line}
            assert of_log == ({told} if told else set())
            chosen.append(told)
            assert (answer.status, answer.headers.get("x-greenroom-backend")) == (status, backend)
            assert sent.requests - before == (backend == "studio")
        body = {"model": "studio/qwen3"}  # loads it
        refused = await fetch(each.near.server, "POST", "/api/generate", body, x_api_key=secrets["home"])
        assert refused.status == 403

        async def rows() -> list[tuple[str, int, str, str]]:
            found = await fetch(each.near.server, "GET", "/admin/audit", x_api_key=secrets["boss"])
            rows = [row for row in found.json()["requests"] if row["protocol"] == "openai"]
            return [(row["key_name"], row["status"], row["backend"], row["chosen"]) for row in reversed(rows)]

        async def is_written() -> bool:
            return len(await rows()) == len(wanted)

        await eventually(is_written)
        why = "its API key keeps requests on this machine"
        stays = f"qwen3: takes the place of studio/qwen3; studio/qwen3: {why}"
        first = "studio/qwen3: comes first; qwen3: comes next"
        assert chosen == ["", stays, first]
        assert await rows() == [
            ("home", 403, "local", ""),
            ("home", 200, "local", stays),
            ("guest", 200, "studio", first),
        ]


PHASES = ("before the headers", "before the first token", "amid the answer")


@_DEAR
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_far_process_that_dies_or_stops_is_replaced_or_told_and_heals(
    phase: str, number: signal.Signals, tiny_model: Callable[..., Path]
) -> None:
    """Its steps hang before the first token; amid the answer they are slow enough to be interrupted."""
    folder = tiny_model("qwen3")
    program = failing("hang", "qwen3" if phase == PHASES[1] else "none", pace=0.3)
    limits: dict[str, dict[str, Any]] = {
        PHASES[0]: {"first_token_timeout": 3.0},
        PHASES[1]: {"first_token_timeout": 30.0},
        PHASES[2]: {"silence_timeout": 3.0},
    }
    routes = (("smart", Route(("studio/qwen3", "qwen3"))),)
    arguments = (str(folder), "--no-audit", "--port", str(free_port()))
    with ExitStack() as restarts, server_process(*arguments, program=program, only_json=False) as far:
        remotes = (("studio", Remote(far.address, "greenroom", **limits[phase])),)
        settings = Settings(models=(str(folder),), remotes=remotes, routes=routes, shutdown_timeout=60.0)
        async with serving(settings) as near, connected(near.server) as client:
            if phase == PHASES[0]:
                far.process.send_signal(number)
            elif phase == PHASES[1]:  # else loading would take a part of the first token's time
                load = partial(httpx.post, json={"model": "qwen3"}, timeout=PATIENCE)
                await trio.to_thread.run_sync(load, f"{far.address}/admin/models/load")
            body = {**CHAT, "model": "smart", "stream": True, "max_tokens": 40, "ignore_eos": True}
            await client.request(
                "POST", "/v1/chat/completions", json.dumps(body).encode(), connection="close"
            )
            if phase == PHASES[1]:
                await trio.to_thread.run_sync(far.wait_for, "step fails")
                far.process.send_signal(number)
            elif phase == PHASES[2]:
                await client.read_until(b'"delta":{"content"')
                far.process.send_signal(number)
            rest = (await client.read_to_end()).decode()
            if phase == PHASES[2]:
                assert '"error"' in rest
                assert re.search("remote_(failed|silent|unreachable)", rest), rest
                assert '"finish_reason":"' not in rest
            else:
                assert '"error"' not in rest
                assert '"finish_reason":"length"' in rest
            far.kill()
            far.process.wait()
            await trio.to_thread.run_sync(restarts.enter_context, server_process(*arguments))

            async def is_back() -> bool:
                answer = await ask(near, "studio/qwen3")
                return answer.status == 200

            await eventually(is_back)


async def test_the_doctor_tells_of_each_remote_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    old = Script(
        models("a").pieces, kind="application/json", headers={"date": "Thu, 01 Jan 2026 00:00:00 GMT"}
    )
    async with (
        standing_in(answering(Script(), "a", "b")) as fine,
        standing_in(lambda asked: old) as late,
        standing_in(lambda asked: Script(status=401)) as locked,
        standing_in(lambda asked: Script((b"<html>",), kind="text/html")) as page,
    ):
        remotes = {
            "fine": Remote(fine.url),
            "late": Remote(late.url),
            "locked": Remote(locked.url),
            "page": Remote(page.url),
            "gone": Remote("http://127.0.0.1:9"),
            "uncertain": Remote(fine.url, ca_file="~nobody-here/none.pem"),
            "odd": Remote("http://\u2603.example"),
            "keyless": Remote(fine.url, key_env="NO_KEY"),
        }
        settings = Settings(remotes=tuple(remotes.items()))
        found = await trio.to_thread.run_sync(lambda: [*check_remotes(settings)])
    wrong = {each.text.partition(",")[0]: each.text for each in found if each.wrong}
    assert wrong.keys() == {"locked", "page", "gone", "odd", "uncertain", "keyless"}
    assert "cannot be used" in wrong["odd"]
    assert "cannot be used" in wrong["uncertain"]
    assert "refuses its key" in wrong["locked"]
    assert "the variable NO_KEY: the key is empty" in wrong["keyless"]
    assert [each.text for each in found if "clock" in each.text]
    assert any("2 models" in each.text for each in found)


@_DEAR
async def test_three_greenrooms_share_requests_and_pass_none_on_twice(
    tiny_model: Callable[..., Path],
) -> None:
    folder = str(tiny_model("qwen3"))
    async with serving(Settings(models=(folder,), shutdown_timeout=60.0)) as first:
        last = ("first", Remote(first.server.address, "greenroom"))
        async with serving(Settings(models=(folder,), remotes=(last,), shutdown_timeout=60.0)) as second:
            names = ("qwen3", "chain=first/qwen3")
            remotes = (
                ("a", Remote(first.server.address, "greenroom", slots=2)),
                ("b", Remote(second.server.address, "greenroom", models=names, slots=2)),
            )
            route = ("any", Route(("a/qwen3", "b/qwen3"), max_wait=0.0))
            near = Settings(remotes=remotes, routes=(route,), shutdown_timeout=60.0)
            async with serving(near) as third:
                sent = third.system.remotes.servers
                # What is the second one's from the first is asked of neither.
                chained = await ask(third, "b/chain")
                assert (chained.status, chained.json()["error"]["code"]) == (503, "remote_refused")
                assert second.system.remotes.servers["first"].requests == 0
                assert (await ask(second, "first/qwen3")).status == 200
                statuses: list[int] = []

                async def one() -> None:
                    statuses.append((await ask(third, "any")).status)

                async with trio.open_nursery() as nursery:
                    for _ in range(8):
                        nursery.start_soon(one)
                assert statuses == [200] * 8
                assert min(sent["a"].requests, sent["b"].requests - 1) > 0
                async with connected(third.server) as client:
                    body = {**CHAT, "model": "a/qwen3", "stream": True, "ignore_eos": True}
                    asked = json.dumps({**body, "max_tokens": 4_000}).encode()
                    await client.request("POST", "/v1/chat/completions", asked)
                    await client.read_until(b'"delta":{"content"')

                async def is_idle() -> bool:
                    found = [await fetch(each.server, "GET", "/admin/requests") for each in (first, third)]
                    return all(each.json()["requests"] == [] for each in found)

                await eventually(is_idle)
                assert sent["a"].running == 0
