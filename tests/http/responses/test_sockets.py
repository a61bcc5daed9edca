"""Responses over WebSocket, with the cases of Open Responses' suite (2026-04-24) and OpenAI's own client."""

from __future__ import annotations

from typing import Any

import attrs
import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.clients.web_socket_clients import RawSocket, open_socket
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

CREATE = {"type": "response.create", "model": "qwen3", "max_output_tokens": 6, "temperature": 0}
LOCAL = {**CREATE, "store": False}


async def ended(socket: RawSocket, message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Send a message; return its completed response."""
    events = await socket.answer(message, **fields)
    assert events[0]["type"] == "response.created", events
    assert events[-1]["type"] in ("response.completed", "response.incomplete"), events[-1]
    response = events[-1]["response"]
    assert isinstance(response, dict)
    return response


async def error(socket: RawSocket, message: dict[str, Any], **fields: Any) -> tuple[int, str, str | None]:
    """Send a message; return status, code and parameter of its error."""
    [event] = await socket.answer(message, **fields)
    assert event["type"] == "error"
    assert event["error"]["message"]
    return event["status"], event["error"]["code"], event["error"]["param"]


async def posted(served: Served, body: dict[str, Any]) -> dict[str, Any]:
    answer = await fetch(served.server, "POST", "/v1/responses", body)
    assert answer.status == 200, answer.body
    response = answer.json()
    assert isinstance(response, dict)
    return response


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()))


NOT_FOUND = (400, "previous_response_not_found", "previous_response_id")


async def test_a_message_gets_the_events_of_a_stream(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        events = await socket.answer(CREATE, input="one two three")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.incomplete"
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        last = events[-1]["response"]
        whole = await posted(served, {**CREATE, "input": "one two three"})
        assert "".join(deltas) == text_of(last) == text_of(whole)
        assert last["usage"]["output_tokens"] == 6
        # A response is stored by default.
        stored = await fetch(served.server, "GET", f"/v1/responses/{last['id']}")
        assert stored.json() == last


async def test_responses_follow_each_other(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        first = await ended(socket, LOCAL, input="one")
        second = await ended(socket, LOCAL, input="two")
        assert first["id"] != second["id"]
        assert second["previous_response_id"] is None


async def test_what_is_not_stored_goes_on_on_its_socket(settings: Settings) -> None:
    turns: list[dict[str, Any]] = [
        {"instructions": "Be brief.", "input": "one two"},
        {"input": "three four"},
        {"input": "five"},
    ]
    async with serving(settings) as served, open_socket(served) as socket:
        previous: dict[str, Any] = {}
        expected: dict[str, Any] = {}
        for turn in turns:
            previous = await ended(socket, LOCAL, previous_response_id=previous.get("id"), **turn)
            expected = await posted(served, {**CREATE, "previous_response_id": expected.get("id"), **turn})
            assert text_of(previous) == text_of(expected)
            assert previous["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
            assert (await fetch(served.server, "GET", f"/v1/responses/{previous['id']}")).status == 404


async def test_another_socket_does_not_know_what_was_not_stored(settings: Settings) -> None:
    async with serving(settings) as served:
        async with open_socket(served) as socket:
            kept = await ended(socket, LOCAL, input="one")
        async with open_socket(served) as socket:
            assert await error(socket, LOCAL, previous_response_id=kept["id"], input="two") == NOT_FOUND
            await ended(socket, LOCAL, input="a new chain")


async def test_an_unknown_response_is_not_found(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        assert await error(socket, LOCAL, previous_response_id="resp_missing", input="two") == NOT_FOUND


ORPHAN = {"type": "function_call_output", "call_id": "call_missing", "output": "nothing"}


async def test_a_failed_turn_forgets_what_it_went_on_from(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        failing: list[dict[str, Any]] = [
            {"input": [ORPHAN]},
            {"input": "two", "top_p": 7},
            {"input": "two", "n": 3},
        ]
        for fields in failing:
            kept = await ended(socket, LOCAL, input="one")
            assert (await error(socket, LOCAL, previous_response_id=kept["id"], **fields))[0] == 400
            assert await error(socket, LOCAL, previous_response_id=kept["id"], input="two") == NOT_FOUND


@pytest.mark.deep
async def test_a_compacted_conversation_begins_a_new_chain(settings: Settings) -> None:
    said = [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]
    short = attrs.evolve(settings, max_context=1_024)  # so is the summary
    async with serving(short) as served, open_socket(served) as socket:
        answer = await fetch(
            served.server, "POST", "/v1/responses/compact", {"model": "qwen3", "input": said}
        )
        first = await ended(
            socket, LOCAL, input=[*answer.json()["output"], {"role": "user", "content": "go on"}], tools=[]
        )
        second = await ended(socket, LOCAL, previous_response_id=first["id"], input="and on")
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


async def test_a_socket_goes_on_from_what_is_stored(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        stored = await ended(socket, CREATE, input="one")
        local = await ended(socket, LOCAL, previous_response_id=stored["id"], input="two")
        third = await ended(socket, LOCAL, previous_response_id=local["id"], input="three")
        second = await posted(served, {**CREATE, "previous_response_id": stored["id"], "input": "two"})
        same = await posted(served, {**CREATE, "previous_response_id": second["id"], "input": "three"})
        assert third["usage"]["input_tokens"] == same["usage"]["input_tokens"], "with the stored turn"
        # A failure does not delete a stored response.
        assert (await error(socket, LOCAL, previous_response_id=stored["id"], input=[ORPHAN]))[0] == 400
        assert (await ended(socket, LOCAL, previous_response_id=stored["id"], input="two"))["id"]


async def test_only_the_latest_response_of_a_lane_is_kept(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        first = await ended(socket, LOCAL, input="one", stream_id="a")
        other = await ended(socket, LOCAL, input="one", stream_id="b")
        second = await ended(socket, LOCAL, input="two", stream_id="a", previous_response_id=first["id"])
        [event] = await socket.answer(LOCAL, input="two", stream_id="a", previous_response_id=first["id"])
        assert (event["error"]["code"], event["stream_id"]) == ("previous_response_not_found", "a")
        events = await socket.answer(LOCAL, input="two", stream_id="c", previous_response_id=other["id"])
        assert {event["stream_id"] for event in events} == {"c"}
        await ended(socket, LOCAL, input="three", stream_id="a", previous_response_id=second["id"])


async def test_a_state_is_prepared_without_output(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        events = await socket.answer(LOCAL, input="one two", generate=False)
        assert [event["type"] for event in events] == [
            "response.created",
            "response.in_progress",
            "response.completed",
        ]
        prepared = events[-1]["response"]
        assert (prepared["output"], prepared["usage"]["output_tokens"]) == ([], 0)
        after = await ended(socket, LOCAL, previous_response_id=prepared["id"], input="three")
        said = [{"role": "user", "content": text} for text in ("one two", "three")]
        assert text_of(after) == text_of(await posted(served, {**LOCAL, "input": said}))
        assert (await error(socket, {**LOCAL, "model": "nobody"}, input="one", generate=False))[0] == 404


async def test_the_operators_prompt_stays_that_of_the_first_turn(settings: Settings, tmp_path: Any) -> None:
    (tmp_path / "prompt").write_text("seven eight")
    async with (
        serving(attrs.evolve(settings, system_prompt=str(tmp_path / "prompt"))) as served,
        open_socket(served) as socket,
    ):
        for first in ({"input": "one"}, {"instructions": "two", "input": "one"}):
            local = await ended(socket, LOCAL, **first)
            kept = await posted(served, {**CREATE, **first})
            answers = (
                await ended(socket, LOCAL, previous_response_id=local["id"], input="three"),
                await posted(served, {**CREATE, "previous_response_id": kept["id"], "input": "three"}),
            )
            assert len({answer["usage"]["input_tokens"] for answer in answers}) == 1


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
async def test_the_official_client_connects(settings: Settings) -> None:
    async with serving(settings) as served:

        def on_thread(client: openai.OpenAI) -> list[Any]:
            events: list[Any] = []
            with client.responses.connect() as connection:
                for text in ("one two", "three"):
                    connection.response.create(
                        model="qwen3",
                        store=False,
                        max_output_tokens=4,
                        input=text,
                        previous_response_id=events[-1].response.id if events else None,
                    )
                    for event in connection:
                        events.append(event)
                        if event.type in ("response.incomplete", "response.completed", "error"):
                            break
            return events

        events = await ask(served, on_thread)
        assert [event.type for event in events if event.type.startswith("response.in")].count(
            "response.incomplete"
        ) == 2
        assert events[-1].response.previous_response_id


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"input": "one"}, "type"),
        ({"type": "response.cancel"}, "type"),
        ({**LOCAL, "input": "one", "background": True}, "background"),
        ({**LOCAL, "input": "one", "stream_id": 7}, "stream_id"),
        ({**LOCAL, "input": "one", "stream_id": "x" * 65}, "stream_id"),
        ({**LOCAL, "input": "one", "generate": "no"}, "generate"),
        ({**LOCAL, "input": []}, "input"),
        ({**LOCAL, "input": [{"type": "message"}]}, "input[0].role"),
    ],
)
async def test_what_is_wrong_with_a_message_is_named(
    server_without_model: Served, message: dict[str, Any], param: str
) -> None:
    async with open_socket(server_without_model) as socket:
        [event] = await socket.answer(message)
        assert (event["status"], event["error"]["param"]) == (400, param)
        assert event["error"]["type"] == "invalid_request_error"


async def test_a_socket_with_anthropics_header_survives_a_refusal(server_without_model: Served) -> None:
    async with open_socket(server_without_model, anthropic_version="2023-06-01") as socket:
        for _ in range(2):
            assert await error(socket, {**LOCAL, "input": []}) == (400, "invalid_value", "input")
