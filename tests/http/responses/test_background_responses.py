"""Background responses: polled, streamed again from any event, cancelled, and found after a restart."""

from __future__ import annotations

import functools
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import openai
import pytest
from structlog.testing import capture_logs

from greenroom.actors.store import store_loop
from greenroom.schemas.messages.requests import BACKGROUND
from greenroom.schemas.settings.settings import Profile, Settings
from greenroom.schemas.stored import UNFINISHED
from greenroom.tests.http.responses.test_stored_responses import body, refusal
from greenroom.tests.support.clients.openai_clients import ask, ask_together
from greenroom.tests.support.engines.watched_engines import WatchedEngines, until, writes
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

ENDED = ("completed", "incomplete", "failed", "cancelled")


def poll(client: openai.OpenAI, ident: str) -> Any:
    """Wait for a response to end, and return it."""
    while (response := client.responses.retrieve(ident)).status not in ENDED:
        time.sleep(0.01)
    return response


def in_background(client: openai.OpenAI, model: str) -> Any:
    """Ask a model for a short response in the background, and return what was accepted."""
    return client.responses.create(model=model, input="one two", max_output_tokens=2, background=True)


def resumed(client: openai.OpenAI, ident: str, after: int | None = None) -> list[dict[str, Any]]:
    """Return the events of a response's stream after a sequence number."""
    query: dict[str, Any] = {} if after is None else {"starting_after": after}
    return [event.to_dict() for event in client.responses.retrieve(ident, stream=True, **query)]


async def events_of(served: Served, ident: str, query: str = "") -> bytes:
    """Return the raw stream of a response."""
    answer = await fetch(served.server, "GET", f"/v1/responses/{ident}?stream=true{query}")
    assert answer.status == 200, answer.body
    return answer.body


async def test_a_response_in_the_background_is_accepted_and_polled(settings: Settings) -> None:
    with capture_logs() as lines:
        async with serving(settings) as served:
            await accepted_and_polled(served)
    stored = [line for line in lines if line["event"] == "response stored"]
    assert [(line["model"], line["background"]) for line in stored] == [("qwen3", True), ("qwen3", False)]


async def accepted_and_polled(served: Served) -> None:
    created = await ask(served, lambda client: client.responses.create(**body(background=True)))
    assert created.status in ("queued", "in_progress")
    assert created.background is True
    assert created.output == []
    ended = await ask(served, lambda client: poll(client, created.id))
    alone = await ask(served, lambda client: client.responses.create(**body()))
    assert (ended.status, ended.output_text) == ("incomplete", alone.output_text)


async def test_an_accepted_response_echoes_the_defaults_of_a_profile(settings: Settings) -> None:
    profiles = (("cold", Profile(model="qwen3", temperature=0.25, top_p=0.5)),)
    async with serving(attrs.evolve(settings, profiles=profiles)) as served:
        created = await ask(served, functools.partial(in_background, model="cold"))
        assert created.status in ("queued", "in_progress")
        assert (created.temperature, created.top_p) == (0.25, 0.5)


@pytest.mark.deep
async def test_a_stream_is_resumed_behind_any_event_now_later_and_after_a_restart(
    settings: Settings, tmp_path: Path
) -> None:
    settings = attrs.evolve(settings, db=str(tmp_path / "store.db"))
    engines = WatchedEngines(settings, stops=True)
    async with serving(settings, engines=engines) as served:

        def begin(client: openai.OpenAI) -> list[dict[str, Any]]:
            events = []
            with client.responses.create(
                **body(max_output_tokens=120, background=True), stream=True
            ) as stream:
                for event in stream:
                    events.append(event.to_dict())
                    if event.type.endswith(".delta"):
                        break
            return events

        begun = await ask(served, begin)
        assert [event["type"] for event in begun[:2]] == ["response.created", "response.queued"]
        ident = begun[0]["response"]["id"]
        engine = await engines.standing()

        def let_go(_: openai.OpenAI) -> list[dict[str, Any]]:
            engine.go_on.set()
            return []

        live = [lambda client, after=after: resumed(client, ident, after) for after in (None, 0, 5, 40)]
        *streams, _ = await ask_together(served, *live, let_go)
        whole = streams[0]
        assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
        assert whole[: len(begun)] == begun
        for stream, after in zip(streams[1:], (0, 5, 40), strict=True):
            assert stream == whole[after + 1 :]
        found = await ask(served, lambda client: client.responses.retrieve(ident))
        assert whole[-1]["response"] == found.to_dict()
        sent = await events_of(served, ident)
        parts = sent.split(b"\n\n")
        assert len(parts) == len(whole) + 2, "and [DONE]"
        for after in (0, 1, 2, len(whole) // 2, len(whole) - 2):
            assert await events_of(served, ident, f"&starting_after={after}") == b"\n\n".join(
                parts[after + 1 :]
            )
        for beyond in (len(whole) - 1, len(whole), 10**9):
            assert await events_of(served, ident, f"&starting_after={beyond}") == b"data: [DONE]\n\n"
    async with serving(settings) as served:
        assert await events_of(served, ident) == sent
        assert await ask(served, lambda client: resumed(client, ident, 3)) == whole[4:]


async def test_only_a_number_says_where_to_go_on(settings: Settings) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body(background=True)))
        for value in ("x", "-1", "1.5", "", "1e3", "%D9%A1", "9" * 400):
            path = f"/v1/responses/{created.id}?stream=true&starting_after={value}"
            answer = await fetch(served.server, "GET", path)
            assert (answer.status, answer.json()["error"]["param"]) == (400, "starting_after"), value
        without = await fetch(served.server, "GET", f"/v1/responses/{created.id}?starting_after=1")
        assert (without.status, without.json()["error"]["param"]) == (400, "starting_after")
        maybe = await fetch(served.server, "GET", f"/v1/responses/{created.id}?stream=maybe")
        assert (maybe.status, maybe.json()["error"]["param"]) == (400, "stream")


async def test_a_response_in_the_background_is_cancelled_by_the_next_step(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with serving(settings, engines=engines) as served:
        created = await ask(served, lambda client: client.responses.create(**body(background=True)))
        engine = await engines.standing()
        before = len(engine.steps)
        cancelled = await ask(served, lambda client: client.responses.cancel(created.id))
        engine.go_on.set()
        await until(lambda: len(engine.steps) > before and not engine.has_work)
        assert len(engine.steps) == before + 1
        assert cancelled.status == "cancelled"
        assert cancelled.output_text
        again = await ask(served, lambda client: client.responses.cancel(created.id))
        assert again.to_dict() == cancelled.to_dict()
        last = (await ask(served, lambda client: resumed(client, created.id)))[-1]
        assert last["response"] == cancelled.to_dict()


async def test_cancelling_what_has_ended_changes_nothing(settings: Settings) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body(background=True)))
        ended = await ask(served, lambda client: poll(client, created.id))
        assert (
            await ask(served, lambda client: client.responses.cancel(created.id))
        ).to_dict() == ended.to_dict()


async def test_what_a_client_waits_for_is_not_cancelled_or_streamed_by_others(
    settings: Settings,
) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body()))
        for call in (
            lambda client: client.responses.cancel(created.id),
            lambda client: resumed(client, created.id),
        ):
            refused = await refusal(served, call)
            assert (refused.status_code, refused.code) == (400, "not_in_background")
        for call in (
            lambda client: client.responses.cancel("resp_unknown"),
            lambda client: resumed(client, "resp_unknown"),
        ):
            assert (await refusal(served, call)).status_code == 404


async def test_the_background_needs_storing(settings: Settings) -> None:
    async with serving(settings) as served:
        refused = await refusal(
            served, lambda client: client.responses.create(**body(background=True, store=False))
        )
        assert (refused.status_code, refused.param) == (400, "background")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_does_not_fit_is_refused_before_it_is_accepted(
    settings: Settings, stream: bool
) -> None:
    async with serving(attrs.evolve(settings, max_context=64)) as served:
        refused = await refusal(
            served,
            lambda client: client.responses.create(
                **body(input="word " * 500, background=True, stream=stream)
            ),
        )
        assert (refused.status_code, refused.code) == (400, "context_length_exceeded")


async def test_a_response_that_waits_is_queued_and_can_be_cancelled(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with serving(attrs.evolve(settings, max_batch=1), engines=engines) as served:
        asked = body(background=True)
        first = await ask(served, lambda client: client.responses.create(**asked))
        engine = await engines.standing()
        second = await ask(served, lambda client: client.responses.create(**asked))
        waiting = await ask(served, lambda client: client.responses.retrieve(second.id))
        assert (second.status, waiting.status) == ("queued", "queued")
        running = await ask(served, lambda client: client.responses.retrieve(first.id))
        assert running.status == "in_progress"
        for response in (second, first):
            cancelled = await ask(served, lambda client, r=response: client.responses.cancel(r.id))  # type: ignore[misc]
            assert cancelled.status == "cancelled"
        engine.go_on.set()


@pytest.mark.parametrize(("stream", "priority"), [(True, 0), (False, BACKGROUND)])
async def test_what_nobody_waits_for_stands_behind_and_a_streamed_run_does_not(
    settings: Settings, stream: bool, priority: int
) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with serving(attrs.evolve(settings, max_batch=1), engines=engines) as served:
        first = body(background=True)
        running = await ask(served, lambda client: client.responses.create(**first))
        engine = await engines.standing()

        def begin(client: openai.OpenAI) -> str:
            if not stream:
                return str(client.responses.create(**first).id)
            with client.responses.create(**first, stream=True) as events:
                return str(next(iter(events)).response.id)

        waits = await ask(served, begin)
        found: list[Any] = []
        while len(found) < 2:
            found = (await fetch(served.server, "GET", "/admin/requests")).json()["requests"]
        assert {each["state"]: each["priority"] for each in found} == {
            "running": BACKGROUND,
            "waiting": priority,
        }
        for ident in (waits, running.id):
            await ask(served, lambda client, name=ident: client.responses.cancel(name))  # type: ignore[misc]
        engine.go_on.set()


async def test_the_clients_own_helper_resumes_a_stream(settings: Settings) -> None:
    async with serving(settings) as served:
        asked = body(background=True, max_output_tokens=40)
        created = await ask(served, lambda client: client.responses.create(**asked))

        def resume(client: openai.OpenAI) -> list[Any]:
            with client.responses.stream(response_id=created.id, starting_after=4) as stream:
                return list(stream)

        events = await ask(served, resume)
        assert [event.sequence_number for event in events] == list(range(5, 5 + len(events)))
        ended = await ask(served, lambda client: poll(client, created.id))
        assert events[-1].response.output_text == ended.output_text


async def test_a_response_is_cancelled_without_a_body_but_not_by_a_page(settings: Settings) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body(background=True)))
        path = f"/v1/responses/{created.id}/cancel"
        for site, status in (("same-origin", 415), ("same-site", 403), ("cross-site", 403)):
            by_page = await fetch(served.server, "POST", path, Sec_Fetch_Site=site)
            assert by_page.status == status
        cancelled = await fetch(served.server, "POST", path)
        assert cancelled.status == 200
        assert cancelled.json()["id"] == created.id


async def test_a_response_whose_server_died_has_failed_for_who_reads_on(
    settings: Settings, tmp_path: Path
) -> None:
    engines = WatchedEngines(settings, stops=True)
    (tmp_path / "running").mkdir()
    async with serving(attrs.evolve(settings, db=f"{tmp_path}/running/db"), engines=engines) as served:
        created = await ask(served, lambda client: client.responses.create(**body(background=True)))
        engine = await engines.standing()
        # This copy of the files equals those of a killed server.
        shutil.copytree(tmp_path / "running", tmp_path / "left")
        await ask(served, lambda client: client.responses.cancel(created.id))
        engine.go_on.set()
    async with serving(attrs.evolve(settings, db=f"{tmp_path}/left/db")) as served:
        found = await ask(served, lambda client: client.responses.retrieve(created.id))
        assert found.status == "failed"
        assert found.error
        for after, number in ((1, 2), (7, 8), (500, 501)):
            [end] = await ask(served, lambda client, after=after: resumed(client, created.id, after))  # type: ignore[misc]
            assert (end["type"], end["sequence_number"]) == ("response.failed", number)
            assert end["response"] == found.to_dict()
        whole = await ask(served, lambda client: resumed(client, created.id))
        kinds = [event["type"] for event in whole]
        assert kinds == ["response.created", "response.queued", "response.failed"]


@pytest.mark.parametrize("route", ["responses", "background", "chat"])
async def test_nothing_is_generated_that_is_known_not_to_be_stored(
    route: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_loop, "BUSY_TIMEOUT", 0.05)
    messages = [{"role": "user", "content": "Hello"}]
    chat = {"model": "default", "messages": messages, "max_tokens": 2, "store": True}
    paths = {
        "responses": ("/v1/responses", body()),
        "background": ("/v1/responses", body(background=True)),
        "chat": ("/v1/chat/completions", chat),
    }
    engines = WatchedEngines(settings)
    async with serving(attrs.evolve(settings, db=str(tmp_path / "db")), engines=engines) as served:
        path, asked = paths[route]
        assert (await fetch(served.server, "POST", "/v1/chat/completions", chat)).status == 200
        with closing(sqlite3.connect(tmp_path / "db")) as other:
            other.execute("begin immediate")
            metadata = {"metadata": {"a": "b"}}
            first = await fetch(served.server, "POST", "/v1/conversations", metadata)
            assert (first.status, first.json()["error"]["code"]) == (503, "store_busy")
            assert engines.engine is not None
            steps = len(engines.engine.steps)
            refused = await fetch(served.server, "POST", path, asked)
            assert (refused.status, refused.json()["error"]["code"]) == (503, "store_busy")
            assert not writes(engines.engine.steps[steps:])
            other.rollback()
        assert (await fetch(served.server, "POST", path, asked)).status == 200


async def test_a_conversation_names_the_answer_under_way_and_takes_its_responses_along(
    settings: Settings,
) -> None:
    engines = WatchedEngines(settings, stops=True)
    question: Any = {"role": "user", "content": "one two"}
    async with serving(settings, engines=engines) as served:
        made = await ask(served, lambda client: client.conversations.create(items=[question]))
        path = f"/v1/conversations/{made.id}"

        async def latest() -> Any:
            return (await fetch(served.server, "GET", path)).json().get("latest_response")

        assert await latest() is None

        def begin(client: openai.OpenAI) -> str:
            wanted = {**body(background=True), "input": [], "conversation": made.id}
            return str(client.responses.create(**wanted).id)

        ident = await ask(served, begin)
        engine = await engines.standing()
        under_way = await latest()
        assert (under_way["id"], under_way["status"] in UNFINISHED) == (ident, True)
        engine.go_on.set()
        ended = await ask(served, lambda client: poll(client, ident))
        assert await latest() == {"id": ident, "status": ended.status}
        items = (await fetch(served.server, "GET", f"{path}/items?order=asc")).json()["data"]
        assert [item["role"] for item in items] == ["user", "assistant"]
        wrong = await fetch(served.server, "DELETE", f"{path}?responses=maybe")
        assert (wrong.status, wrong.json()["error"]["param"]) == (400, "responses")
        assert (await fetch(served.server, "DELETE", f"{path}?responses=true")).status == 200
        assert (await fetch(served.server, "GET", f"/v1/responses/{ident}")).status == 404
