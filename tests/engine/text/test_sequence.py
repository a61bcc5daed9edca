"""Tests of a sequence's events, token by token, and of its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.formats.registry import make_reasoning_parser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequence import Sequence
from greenroom.engine.text.sequence_outputs import AnswerLogprobs, AnswerText
from greenroom.schemas.events.events import InferenceEvent, ReasoningDelta, TextDelta, Token, ToolCallDelta
from greenroom.schemas.messages.messages import ControlToken, Tool
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.engines.logprobs import scores_of
from greenroom.tests.support.engines.text_engines import finished, loaded

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))


class Scripted:
    """A detokenizer that returns scripted text for any tokens."""

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
    prepared = PreparedPrompt(PROMPT, frozenset({2}), 2, tools=tools)
    row = Sequence(
        "a",
        PROMPT,
        max_tokens=2,
        stop_token_ids=frozenset({2}),
        sampling=SamplingParameters(),
        text=AnswerText(
            Scripted('<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>', "x"),
            adapter.new_stream_processor(prepared, lambda: "call_1"),
        ),
    )
    events = [*row.append_token(50), *row.append_token(2 if ends else 51)]
    assert [event.name for event in events if isinstance(event, ToolCallDelta) and event.name] == ["ring"]
    assert finished(events).reason == reason
    raw = '<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>'
    assert finished(events).raw == raw + ("" if ends else "x")


@pytest.mark.parametrize(
    ("last", "reason", "called"),
    [(2, "tool_calls", True), (3, "stop", False), (51, "length", False)],
)
def test_calls_in_an_open_thought_are_made_where_the_model_itself_ends(
    tiny_model: TinyModel, last: int, reason: str, called: bool
) -> None:
    adapter = loaded(tiny_model("qwen3"))[1]
    tools = (Tool("ring", parameters={"type": "object"}),)
    prepared = PreparedPrompt(PROMPT, frozenset({2, 3}), 2, tools=tools, starts_in_reasoning=True)
    row = Sequence(
        "a",
        PROMPT,
        max_tokens=2,
        stop_token_ids=frozenset({2, 3}),
        end_of_turn_ids=frozenset({2}),
        sampling=SamplingParameters(),
        text=AnswerText(
            Scripted('Ring!\n<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>', ""),
            StreamProcessor(
                adapter.tool_parser, make_reasoning_parser("think_tag"), prepared, lambda: "call_1"
            ),
        ),
    )
    events = [*row.append_token(50), *row.append_token(last)]
    assert [event.name for event in events if isinstance(event, ToolCallDelta) and event.name] == [
        *(["ring"] if called else [])
    ]
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert thought.startswith("Ring!")
    assert ("<tool_call>" in thought) is not called
    assert finished(events).reason == reason


def test_a_control_token_is_dropped_by_its_id_and_kept_as_text(tiny_model: TinyModel) -> None:
    adapter = loaded(tiny_model("qwen3"))[1]
    box = ControlToken("<|end_of_box|>", True)
    shown = []
    for token in (70, 71):
        prepared = PreparedPrompt(PROMPT, frozenset({2}), 9)
        row = Sequence(
            "a",
            PROMPT,
            max_tokens=9,
            stop_token_ids=frozenset({2}),
            sampling=SamplingParameters(),
            text=AnswerText(
                Scripted("42", "<|end_of_box|>"),
                adapter.new_stream_processor(prepared, lambda: "call_1"),
                control_tokens={70: box},
            ),
        )
        events = [*row.append_token(50), *row.append_token(token), *row.append_token(2)]
        shown.append("".join(event.text for event in events if isinstance(event, TextDelta)))
    assert shown == ["42", "42<|end_of_box|>"]


def row_with_appendix(
    adapter: Adapter, *pieces: str, max_tokens: int = 3, logprobs: bool = False
) -> Sequence:
    tools = (Tool("ring", parameters={"type": "object"}),)
    prepared = PreparedPrompt(PROMPT, frozenset({2}), max_tokens, tools=tools)
    return Sequence(
        "a",
        PROMPT,
        max_tokens=max_tokens,
        stop_token_ids=frozenset({2}),
        sampling=SamplingParameters(),
        text=AnswerText(
            Scripted(*pieces), adapter.new_stream_processor(prepared, lambda: "call_1"), appendix="\n\ntable"
        ),
        logprobs=AnswerLogprobs(adapter.token, 0) if logprobs else None,
    )


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_an_appendix_ends_the_visible_text_and_nothing_else(
    tiny_model: TinyModel, cut: bool, logprobs: bool
) -> None:
    row = row_with_appendix(loaded(tiny_model("qwen3"))[1], "so", "up", max_tokens=2, logprobs=logprobs)
    events = []
    for token in (50, 51 if cut else 2):
        if row.logprobs is not None:
            row.logprobs.set_scores([-0.5])
        events += row.append_token(token)
    texts = [event for event in events if isinstance(event, TextDelta)]
    assert "".join(text.text for text in texts) == ("soup" if cut else "so") + "\n\ntable"
    assert texts[-1] == TextDelta("\n\ntable")
    assert sum(len(text.logprobs) for text in texts) == (0 if not logprobs else 2 if cut else 1)
    last = finished(events)
    assert events[-1] is last
    assert (last.raw, last.usage.generated) == (("soup", 2) if cut else ("so", 2))


def test_no_appendix_follows_calls_or_what_was_cancelled(tiny_model: TinyModel) -> None:
    adapter = loaded(tiny_model("qwen3"))[1]
    call = '<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>'
    for max_tokens in (1, 3):
        row = row_with_appendix(adapter, call, "", max_tokens=max_tokens)
        events = [*row.append_token(50), *([] if row.finished else row.append_token(2))]
        assert finished(events).reason == ("length" if max_tokens == 1 else "tool_calls")
        assert not any(isinstance(event, TextDelta) for event in events)
    row = row_with_appendix(adapter, "so")
    row.append_token(50)
    assert not any(isinstance(event, TextDelta) for event in row.finish("cancelled"))
    row = row_with_appendix(adapter, "so")
    row.append_token(50)
    assert isinstance(row.finish("length")[-2], TextDelta)


@pytest.mark.parametrize(
    ("pieces", "stop", "shown"),
    [
        (["Hi", "\n", "STOP"], "STOP", ["Hi", "\n"]),
        (["Hi", " ", "\n", "ST", "OP"], "STOP", ["Hi", " ", "\n"]),
        (["One", " stop", " two"], "stop", ["One", " stop"]),
        (["One", " st", "op"], "stop", ["One", " st"]),
        (["a", "aa", "b"], "aab", ["a"]),
        (["xaa", "ab"], "aab", ["xaa"]),
        (["STOP"], "STOP", []),
        (["S", "TOP it"], "STOP", []),
        ([" ", "STOP"], "STOP", [" "]),
        (["Hi", "ST", "AY"], "STOP", ["Hi", "ST", "AY"]),
        (["é", "STO", "P"], "STOP", ["é"]),
    ],
)
def test_scores_are_those_of_the_tokens_before_a_stop_string(
    tiny_model: TinyModel, pieces: list[str], stop: str, shown: list[str]
) -> None:
    prepared = PreparedPrompt(PROMPT, frozenset({2}), 9, stop=(stop,))
    row = Sequence(
        "a",
        PROMPT,
        max_tokens=9,
        stop_token_ids=frozenset({99}),
        sampling=SamplingParameters(),
        text=AnswerText(
            Scripted(*pieces), loaded(tiny_model("qwen3"))[1].new_stream_processor(prepared, str)
        ),
        logprobs=AnswerLogprobs(lambda ident: Token(pieces[ident], pieces[ident].encode()), 0),
    )
    events: list[InferenceEvent] = []
    for token in range(len(pieces)):
        assert row.logprobs is not None
        row.logprobs.set_scores([-0.5])
        events += row.append_token(token)
    if not row.finished:
        events += row.append_token(99)
    assert [score.token.text for score in scores_of(events)] == shown
