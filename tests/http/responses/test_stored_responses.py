"""Stored responses, read and deleted with the official OpenAI client on a real socket."""

from __future__ import annotations

import json
import threading
from itertools import groupby
from operator import itemgetter
from typing import Any

import attrs
import openai
import pytest
import trio

from greenroom.actors.engines.engines import Engines
from greenroom.http.answering.explanation_body import signed_reasoning
from greenroom.http.responses.stored_answer import with_encrypted_reasoning
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredResponse
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.clients.openai_clients import ask, ask_together
from greenroom.tests.support.engines.watched_engines import WatchedEngines
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.http_servers import Served, fetch, serving


def body(**changed: Any) -> dict[str, Any]:
    return {"model": "qwen3", "input": "one two three", "max_output_tokens": 8, "temperature": 0, **changed}


def streamed(client: openai.OpenAI, **changed: Any) -> list[dict[str, Any]]:
    """Return all events of a streamed response."""
    with client.responses.stream(**body(**changed)) as stream:
        return [event.to_dict() for event in stream]


async def refusal(served: Served, call: Any) -> openai.APIStatusError:
    """Return the error that a call raises."""
    with pytest.raises(openai.APIStatusError) as raised:
        await ask(served, call)
    return raised.value


async def test_a_response_is_found_as_it_was_answered_until_it_is_deleted(settings: Settings) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body(metadata={"a": "b"})))
        assert created.to_dict()["store"] is True
        found = await ask(served, lambda client: client.responses.retrieve(created.id))
        assert found.to_dict() == created.to_dict()
        assert found.metadata == {"a": "b"}
        await ask(served, lambda client: client.responses.delete(created.id))
        gone = await refusal(served, lambda client: client.responses.retrieve(created.id))
        assert (gone.status_code, gone.code) == (404, "response_not_found")
        assert (await refusal(served, lambda client: client.responses.delete(created.id))).status_code == 404
        deleted = await fetch(served.server, "DELETE", "/v1/responses/resp_unknown")
        assert deleted.status == 404


async def test_a_deleted_response_is_answered_as_openai_does(settings: Settings) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body()))
        answer = await fetch(served.server, "DELETE", f"/v1/responses/{created.id}")
        assert answer.json() == {"id": created.id, "object": "response", "deleted": True}


async def test_the_end_of_a_stream_is_stored_before_it_is_sent(settings: Settings) -> None:
    async with serving(settings) as served:

        def read_and_retrieve(client: openai.OpenAI) -> tuple[Any, Any]:
            with client.responses.stream(**body()) as stream:
                for event in stream:
                    if event.type in ("response.completed", "response.incomplete"):
                        return event.response.to_dict(), client.responses.retrieve(
                            event.response.id
                        ).to_dict()
            raise AssertionError("no end")

        told, found = await ask(served, read_and_retrieve)
        told["output"] = [_without_parsed(item) for item in told["output"]]
        assert told == found


def _without_parsed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without the fields that the client's helper adds."""
    content = [{k: v for k, v in part.items() if k != "parsed"} for part in item["content"]]
    return {**item, "content": content}


async def test_stored_and_passing_responses_read_the_same(settings: Settings) -> None:
    async with serving(settings) as served:
        stored, passing = [
            await ask(served, lambda client, store=store: streamed(client, store=store))  # type: ignore[misc]
            for store in (True, False)
        ]
        kinds = [[kind for kind, _ in groupby(events, itemgetter("type"))] for events in (stored, passing)]
        assert kinds[0] == kinds[1], "but for how the text is parted"
        assert [event["sequence_number"] for event in stored] == list(range(len(stored)))
        deltas = [[e["delta"] for e in events if "delta" in e] for events in (stored, passing)]
        assert "".join(deltas[0]) == "".join(deltas[1])
        ends = [events[-1]["response"] for events in (stored, passing)]
        assert ends[0].pop("store") is not ends[1].pop("store")
        for end in ends:
            for name in ("id", "created_at", "completed_at"):
                end.pop(name)
            for item in end["output"]:
                item.pop("id")
            end["usage"]["input_tokens_details"].pop("cached_tokens")
        assert ends[0] == ends[1]
        gone = await refusal(served, lambda client: client.responses.retrieve(passing[0]["response"]["id"]))
        assert gone.status_code == 404


async def test_what_was_asked_is_listed_a_page_at_a_time(settings: Settings) -> None:
    asked = [{"role": "user", "content": f"Item {number}"} for number in range(5)]
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body(input=asked)))

        def texts(client: openai.OpenAI, **query: Any) -> list[str]:
            items = client.responses.input_items.list(created.id, **query)
            bodies: list[Any] = [item.to_dict() for item in items]
            return [item["content"][0]["text"] for item in bodies]

        oldest = [f"Item {number}" for number in range(5)]
        assert await ask(served, lambda client: texts(client, order="asc", limit=2)) == oldest
        assert await ask(served, texts) == oldest[::-1]
        page = (await fetch(served.server, "GET", f"/v1/responses/{created.id}/input_items?limit=2")).json()
        assert (page["object"], page["has_more"]) == ("list", True)
        assert page["data"][0]["id"] == page["first_id"]
        assert page["data"][1]["id"] == page["last_id"]
        for query in ("limit=0", "limit=x", "limit=101", "order=up", "include=all"):
            path = f"/v1/responses/{created.id}/input_items?{query}"
            answer = await fetch(served.server, "GET", path)
            assert (answer.status, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


async def test_a_turn_that_continues_another_knows_what_was_said(settings: Settings) -> None:
    async with serving(settings) as served:
        first = await ask(served, lambda client: client.responses.create(**body()))
        turns: list[Any] = [{"role": "user", "content": "one two three"}, *first.to_dict()["output"]]
        more = {"role": "user", "content": "and then"}
        alone = await ask(served, lambda client: client.responses.create(**body(input=[*turns, more])))
        for number in range(2):
            goes_on = await ask(
                served,
                lambda client: client.responses.create(**body(input=[more], previous_response_id=first.id)),
            )
            assert goes_on.output_text == alone.output_text, f"branch {number}"
            assert goes_on.usage
            assert alone.usage
            assert goes_on.usage.input_tokens == alone.usage.input_tokens
        unknown = await refusal(
            served, lambda client: client.responses.create(**body(previous_response_id="resp_unknown"))
        )
        assert unknown.status_code == 404


async def test_two_turns_at_once_in_one_conversation_are_one_too_many(settings: Settings) -> None:
    faults = Faults(gate=threading.Event())
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        conversation = await ask(served, lambda client: client.conversations.create())

        def turn(client: openai.OpenAI) -> str:
            assert faults.gate is not None
            try:
                return str(client.responses.create(**body(conversation=conversation.id)).id)
            except openai.ConflictError as error:
                faults.gate.set()
                return str(error.code)

        turns = await ask_together(served, *[turn] * 6)
        stored = [turn for turn in turns if turn != "conversation_in_use"]
        assert stored
        assert len(stored) < 6
        items = await ask(
            served, lambda client: [*client.conversations.items.list(conversation.id, order="asc")]
        )
        assert len(items) == 2 * len(stored), "each turn whole"
        assert [item.role for item in items] == ["user", "assistant"] * len(stored)
        assert (await ask(served, turn)).startswith("resp_")


async def test_what_is_refused_is_no_turn_and_holds_nothing(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, max_context=256)) as served:
        conversation = await ask(served, lambda client: client.conversations.create())
        asked = body(conversation=conversation.id)
        for stream in (False, True):
            too_long = await refusal(
                served,
                lambda client, stream=stream: client.responses.create(
                    **{**asked, "input": "word " * 900, "stream": stream}
                ),
            )
            assert (too_long.status_code, too_long.code) == (400, "context_length_exceeded")
        assert (await ask(served, lambda client: client.responses.create(**asked))).status == "incomplete"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_fails_in_the_middle_is_told_and_stored(settings: Settings, stream: bool) -> None:
    async with serving(settings, engines=_CrashingEngines(settings)) as served:
        asked = body(max_output_tokens=2_000)
        if not stream:
            failed = await refusal(served, lambda client: client.responses.create(**asked))
            assert failed.status_code == 500
            return
        events = await ask(served, lambda client: [*client.responses.create(**asked, stream=True)])
        assert events[-1].type == "response.failed"
        found = await ask(served, lambda client: client.responses.retrieve(events[-1].response.id))
        assert found.status == "failed"
        assert found.error
        assert found.error.code == "server_error"
        assert found.to_dict() == events[-1].response.to_dict()


class _CrashingEngines(Engines):
    """Engines that raise in the second step of every request."""

    def load_engine(self, *arguments: Any) -> Any:
        return _CrashingEngine(super().load_engine(*arguments))


class _CrashingEngine:
    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self) -> Any:
        events = self._engine.step()
        self._tokens += len(events)
        if self._tokens > 5:
            raise RuntimeError("planted crash")
        return events


async def test_where_nothing_is_kept_responses_pass_and_storing_is_refused(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, store_responses=False)) as served:
        passing = await ask(served, lambda client: client.responses.create(**body()))
        assert passing.to_dict()["store"] is False
        for changed, param in (({"store": True}, "store"), ({"background": True}, "background")):
            refused = await refusal(
                served,
                lambda client, changed=changed: client.responses.create(**body(**changed)),
            )
            assert (refused.status_code, refused.param) == (400, param)


def test_thoughts_are_sealed_afterwards_where_they_are_asked_for() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So be it."}]}
    said = {"type": "message", "content": []}
    stored = StoredResponse("r", "", "m", "completed", 1.0, json.dumps({"output": [thought, said]}))
    shown, other = json.loads(with_encrypted_reasoning(stored).body)["output"]
    assert signed_reasoning("", shown.pop("encrypted_content")) == "So be it."
    assert [shown, other] == [thought, said]


async def test_only_known_things_are_included(settings: Settings) -> None:
    async with serving(settings) as served:
        created = await ask(served, lambda client: client.responses.create(**body()))
        include: Any = ["reasoning.encrypted_content"]
        found = await ask(served, lambda client: client.responses.retrieve(created.id, include=include))
        assert found.to_dict() == created.to_dict()
        answer = await fetch(served.server, "GET", f"/v1/responses/{created.id}?include=all")
        assert (answer.status, answer.json()["error"]["param"]) == (400, "include")


async def test_a_client_that_leaves_finds_what_was_written(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with serving(settings, engines=engines) as served:

        def begin(client: openai.OpenAI) -> tuple[str, str]:
            with client.responses.create(**body(), stream=True) as stream:
                for event in stream:
                    if event.type == "response.created":
                        ident = event.response.id
                    if event.type == "response.output_text.delta":
                        wait_until(lambda: engines.stand)
                        return ident, event.delta
            raise AssertionError("no text")

        ident, text = await ask(served, begin)
        engine = await engines.standing()
        found: Any = None
        with trio.fail_after(300):
            while found is None or found["status"] == "in_progress":
                answer = await fetch(served.server, "GET", f"/v1/responses/{ident}")
                assert answer.status == 200
                found = answer.json()
        engine.go_on.set()
        assert found["status"] == "cancelled"
        assert found["output"][0]["content"][0]["text"].startswith(text)
        assert found["output"][0]["status"] == "incomplete"
        assert json.dumps(found["usage"]) == "null"
