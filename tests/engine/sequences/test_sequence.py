"""One answer, token by token: what it says when it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.events import ToolCallDelta
from greenroom.schemas.messages import Tool
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.tests.support.text_engines import finished, loaded

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))


class Scripted:
    """A detokenizer that says the same whatever the tokens."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = [*pieces]
        self.last_segment = ""

    def add_token(self, token: int) -> None:
        self.last_segment = self._pieces.pop(0)

    def finalize(self) -> None:
        self.last_segment = ""


@pytest.mark.parametrize(("ends", "reason"), [(True, "tool_calls"), (False, "length")])
def test_calls_are_the_reason_unless_the_answer_was_cut(
    tiny_model: TinyModel, ends: bool, reason: str
) -> None:
    adapter = loaded(tiny_model("qwen3"))[1]
    tools = (Tool("ring", parameters={"type": "object"}),)
    prepared = PreparedInput(PROMPT, frozenset({2}), 2, tools=tools)
    row = Sequence(
        "a",
        PROMPT,
        max_tokens=2,
        stop_token_ids=frozenset({2}),
        sampling=SamplingParameters(),
        detokenizer=Scripted('<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>', "x"),
        processor=adapter.new_stream_processor(prepared, lambda: "call_1"),
    )
    events = [*row.append_token(50), *row.append_token(2 if ends else 51)]
    assert [event.name for event in events if isinstance(event, ToolCallDelta) and event.name] == ["ring"]
    assert finished(events).reason == reason
