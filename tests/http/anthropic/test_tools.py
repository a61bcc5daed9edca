"""Reasoning, tools and formats, from a model's text to the objects of Anthropic's client, and back."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Literal

import anthropic
import pydantic

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import ScriptedEngines
from greenroom.tests.support.clients.anthropic_clients import ask
from greenroom.tests.support.servers.http_servers import serving
from greenroom.tests.support.servers.shared_servers import Shared

THOUGHT = "Two cities, so two calls."
CALLS = [("get_weather", {"city": "Rom"}), ("get_weather", {"city": "Zürich"})]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rom", "Zürich"]}},
    "required": ["city"],
    "additionalProperties": False,
}
ASKED: dict[str, Any] = {
    "model": "qwen3",
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "Weather in Rom and Zürich?"}],
    "thinking": {"type": "adaptive"},
    "tools": [{"name": "get_weather", "description": "The weather of a city", "input_schema": SCHEMA}],
}


def calling(adapter: Adapter) -> str:
    """Return reasoning, a sentence and two calls in the model's own format."""
    calls = [ParsedCall(name, json.dumps(arguments)) for name, arguments in CALLS]
    return f"<think>\n{THOUGHT}\n</think>\n\nOne moment.\n" + render_calls(adapter.tool_parser, calls)


def follow(client: Any) -> tuple[list[Any], Any]:
    with client.messages.stream(**ASKED) as stream:
        return list(stream), stream.get_final_message()


async def test_the_clients_tool_runner_goes_on_where_no_threads_are_kept(settings: Settings) -> None:
    @anthropic.beta_tool  # type: ignore[untyped-decorator]
    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        return f"rain in {city}"

    def run(client: Any) -> Any:
        asked = {**ASKED, "tools": [get_weather]}
        runner = client.beta.messages.tool_runner(**asked, max_iterations=1)
        return runner.until_done(), runner.generate_tool_call_response()

    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        message, results = await ask(served, run)
    assert message.stop_reason == "tool_use"
    assert [block["content"] for block in results["content"]] == ["rain in Rom", "rain in Zürich"]


async def test_a_turn_with_calls_goes_on_with_their_results(settings: Settings) -> None:
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        events, message = await ask(served, follow)
        whole = await ask(served, lambda client: client.messages.create(**ASKED))
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block.type for block in whole.content] == [block.type for block in message.content]
        thought, text, *uses = message.content
        assert (thought.thinking.strip(), text.text.strip()) == (THOUGHT, "One moment.")
        assert whole.content[0].signature == thought.signature
        assert [(use.name, use.input) for use in uses] == CALLS
        assert len({use.id for use in uses}) == 2
        assert all(use.id.startswith("toolu_") for use in uses)
        assert message.stop_reason == whole.stop_reason == "tool_use"
        parts = "".join(event.partial_json for event in events if event.type == "input_json")
        assert [json.loads(f"{part}}}") for part in parts.split("}")[:-1]] == [use.input for use in uses]

        results = [
            {
                "type": "tool_result",
                "tool_use_id": use.id,
                "content": [{"type": "text", "text": "sunny"}],
                "is_error": use is uses[0],
            }
            for use in uses
        ]
        history = [*ASKED["messages"], message.to_param(), {"role": "user", "content": results}]
        second = await ask(served, lambda client: client.messages.create(**{**ASKED, "messages": history}))
        counted = await ask(
            served,
            lambda client: client.messages.count_tokens(
                **{**{name: ASKED[name] for name in ("model", "thinking", "tools")}, "messages": history}
            ),
        )
        assert second.usage.input_tokens == counted.input_tokens > message.usage.input_tokens

        forged = {**thought.to_dict(), "thinking": "Something else."}
        history[1] = {"role": "assistant", "content": [forged, *message.content[1:]]}
        counts = []
        for left_out in (
            [forged],  # changed by the client
            [{"type": "thinking", "thinking": "Of another server.", "signature": "EqQBCkYIBRgC"}],
            [{"type": "thinking", "thinking": "Of another server.", "signature": ""}],
            [{"type": "thinking", "thinking": "Of another server."}],
            [{"type": "redacted_thinking", "data": "EmwKAhgB"}],
            [],
        ):
            history[1] = {"role": "assistant", "content": [*left_out, *message.content[1:]]}
            asked: Any = {**ASKED, "messages": history}
            raw = await ask(served, lambda client: client.messages.with_raw_response.create(**asked))  # noqa: B023
            assert ("did not sign" in raw.headers.get("x-greenroom-notice", "")) == bool(left_out)
            counts.append(raw.parse().usage.input_tokens)
        assert len(set(counts)) == 1, "a thought that was left out is in the prompt"


async def test_without_tools_a_call_is_text(settings: Settings) -> None:
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        none = {**ASKED, "tool_choice": {"type": "none"}}
        message = await ask(served, lambda client: client.messages.create(**none))
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.stop_reason == "end_turn"
    assert "get_weather" in message.content[1].text


def create(fields: dict[str, Any], client: Any) -> Any:
    return client.messages.create(**fields)


class Weather(pydantic.BaseModel):
    """The schema of an answer."""

    city: Literal["Rom", "Zürich"]
    sunny: bool


async def test_a_real_model_is_held_to_its_tools_and_formats(settings: Settings, shared: Shared) -> None:
    plain = {name: value for name, value in ASKED.items() if name not in ("thinking", "tools")}
    served = shared(settings)
    for kind in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        choice = {**kind, "disable_parallel_tool_use": True}
        fields = {**plain, "tools": ASKED["tools"], "tool_choice": choice}
        message = await ask(served, partial(create, fields))
        [use] = message.content
        assert (message.stop_reason, use.name) == ("tool_use", "get_weather")
        assert use.input["city"] in ("Rom", "Zürich")
    parsed = await ask(served, lambda client: client.messages.parse(**plain, output_format=Weather))
    assert isinstance(parsed.parsed_output, Weather)
    assert parsed.stop_reason == "end_turn"
