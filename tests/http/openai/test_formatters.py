"""Answers on the wire, without a server: formatters tested against OpenAI's own types."""

from __future__ import annotations

import json
from typing import Any

import attrs
import openai.types as wire_types
import openai.types.chat as chat_types
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from greenroom.http.answering.collecting import ChoiceCollector, CollectedChoice
from greenroom.http.openai.chat_formatter import ChatFormatter, ChatStream
from greenroom.http.openai.chunk_stream import CompletionLogprobs, timings
from greenroom.http.openai.completions import CompletionFormatter, CompletionStream
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    PromptText,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Timing,
    Token,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.messages.messages import TextPart
from greenroom.schemas.problems import model_crashed
from greenroom.schemas.wire.openai_chat import ChatRequest, CompletionRequest, Prompts

FINISHED = Finished("stop", Usage(prompt=7, generated=5, cached=3, reasoning=2), Timing(0.1, 0.5, 2.0))
TIMINGS = {
    "cache_n": 3,
    "prompt_n": 4,
    "prompt_ms": 500.0,
    "prompt_per_token_ms": 125.0,
    "prompt_per_second": 8.0,
    "predicted_n": 5,
    "predicted_ms": 2000.0,
    "predicted_per_token_ms": 400.0,
    "predicted_per_second": 2.5,
    "queued_ms": 100.0,
    "total_ms": 2600.0,
}
ANSWER: list[InferenceEvent] = [
    QueueStatus("loading", 0, "m"),
    Admitted(7),
    PromptProgress(3, 7),
    ReasoningDelta("so "),
    ReasoningDelta("what"),
    TextDelta('He said "hö"\n'),
    TextDelta("\u2028🎭"),
    FINISHED,
]
CALLS: list[InferenceEvent] = [
    TextDelta("Looking."),
    ToolCallDelta(0, "call_a", "weather"),
    ToolCallDelta(0, arguments='{"city": '),
    ToolCallDelta(0, arguments='"Rom"}'),
    ToolCallDelta(1, "call_b", "now", "{}"),
    Finished("tool_calls", Usage(7, 5)),
]


def streamed(events: list[InferenceEvent], **options: Any) -> bytes:
    """Return the streamed response of events."""
    formatter = ChatStream("chatcmpl-1", "m", 123, **options)
    sent = formatter.opening() + b"".join(map(formatter.event, events))
    assert formatter.finished
    return sent


def complete(events: list[InferenceEvent]) -> dict[str, Any]:
    """Return the unstreamed response of events."""
    collector = ChoiceCollector()
    for event in events:
        collector.add(event)
    choice = collector.collected()
    assert choice is not None
    return ChatFormatter(ChatRequest("m", ()), "chatcmpl-1", 1, 123).whole("m", [choice])


def chunks(sent: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream, after checking that `[DONE]` comes once, at the end."""
    lines = sent.split(b"\n\n")
    assert lines.pop() == b""
    assert lines.pop() == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def test_progress_is_sent_to_those_who_ask_for_it() -> None:
    progress = PromptProgress(processed=5, total=7, cached=3, seconds=0.0421)
    _, began, with_progress, *_ = chunks(
        streamed([progress, FINISHED], with_progress=True, include_usage=True)
    )
    assert began["prompt_progress"] == {"total": 7, "cache": 3, "processed": 3, "time_ms": 0}
    assert with_progress["prompt_progress"] == {"total": 7, "cache": 3, "processed": 5, "time_ms": 42}
    assert with_progress["choices"][0]["delta"] == {"content": ""}
    assert with_progress["usage"] is None
    assert len(chunks(streamed([progress, FINISHED]))) == 2


def test_heartbeats_tell_what_the_client_waits_for_if_it_asks() -> None:
    waits = QueueStatus("waiting_for_model", 2, "m", 1500, (), ("other",), 300, 200)
    for progress in (False, True):
        asked: dict[str, Any] = {"with_progress" if progress else "with_status": True}
        stream = ChatStream("chatcmpl-1", "m", 123, **asked)
        assert not stream.has_news
        assert stream.event(waits) == b""
        assert stream.has_news
        [chunk] = chunks(stream.heartbeat() + b"data: [DONE]\n\n")
        chat_types.ChatCompletionChunk.model_validate(chunk, strict=True)
        assert chunk["choices"][0]["delta"] == {"content": ""}
        assert chunk["queue_status"] == {
            "status": "waiting_for_model",
            "position": 2,
            "model": "m",
            "eta_ms": 1500,
            "loading": [],
            "unloading": ["other"],
            "required_bytes": 300,
            "available_bytes": 200,
            "loaded_bytes": None,
            "download_bytes": None,
            "downloaded_bytes": None,
            "bytes_per_second": None,
        }
        assert not stream.has_news
        stream.event(TextDelta("Hello"))
        assert "queue_status" not in chunks(stream.heartbeat() + b"data: [DONE]\n\n")[0]
    unasked = ChatStream("chatcmpl-1", "m", 123)
    assert unasked.event(waits) == b""
    assert not unasked.has_news


def test_a_streamed_chat_field_by_field() -> None:
    first, *middle, last = chunks(streamed(ANSWER))
    assert last.pop("timings") == TIMINGS
    for chunk in (first, *middle, last):
        assert set(chunk) == {"id", "object", "created", "model", "choices", "system_fingerprint"}
        assert (chunk["id"], chunk["object"], chunk["created"]) == (
            "chatcmpl-1",
            "chat.completion.chunk",
            123,
        )
        [choice] = chunk["choices"]
        ending = {"stop_reason"} if chunk is last else set()
        assert set(choice) == {"index", "delta", "logprobs", "finish_reason", *ending}
        assert (choice["index"], choice["logprobs"]) == (0, None)
        chat_types.ChatCompletionChunk.model_validate(chunk, strict=True)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [
        {"content": None, "reasoning_content": "so ", "reasoning": "so "},
        {"content": None, "reasoning_content": "what", "reasoning": "what"},
        {"content": 'He said "hö"\n'},
        {"content": "\u2028🎭"},
    ]
    assert {chunk["choices"][0]["finish_reason"] for chunk in (first, *middle)} == {None}
    assert last["choices"][0]["delta"] == {}
    assert (last["choices"][0]["finish_reason"], last["choices"][0]["stop_reason"]) == ("stop", None)


def test_usage_comes_in_a_chunk_of_its_own_for_those_who_ask() -> None:
    *others, last = chunks(streamed(ANSWER, include_usage=True))
    assert all(chunk["usage"] is None for chunk in others)
    assert not any("timings" in chunk for chunk in others)
    assert (last["choices"], last["timings"]) == ([], TIMINGS)
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {
            "cached_tokens": 3,
            "cache_write_tokens": 0,
            "audio_tokens": 0,
            "image_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 2,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def test_timings_are_of_all_choices_together() -> None:
    fast = Finished("stop", Usage(prompt=7, generated=5, cached=3), Timing(0.1, 0.5, 1.0))
    finished = [fast, *(attrs.evolve(fast, index=i, timing=Timing(0.3, 0.6, 2.0)) for i in (1, 2, 3))]
    figures = timings(finished, choices=2)
    assert (figures.cache_n, figures.prompt_n, figures.predicted_n) == (6, 8, 20)
    assert (figures.prompt_ms, figures.predicted_ms, figures.predicted_per_second) == (600.0, 2000.0, 10.0)
    assert (figures.queued_ms, figures.total_ms) == (100.0, 2900.0)
    nothing = timings([Finished("stop", Usage())], choices=1)
    assert (nothing.prompt_per_second, nothing.predicted_per_token_ms) == (0.0, 0.0)


def test_tool_calls_carry_id_and_name_once() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(streamed(CALLS))]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Rom"}'}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ]
    assert all("content" in delta for delta in deltas[:-1])


@pytest.mark.parametrize("events", [ANSWER, CALLS])
def test_openais_accumulator_reads_a_stream_as_the_whole_answer(events: list[InferenceEvent]) -> None:
    state: Any = ChatCompletionStreamState()
    for chunk in chunks(streamed(events)):
        state.handle_chunk(chat_types.ChatCompletionChunk.model_validate(chunk))
    whole = chat_types.ChatCompletion.model_validate_json(json.dumps(complete(events)), strict=True)
    from_stream = state.get_final_completion().choices[0]
    assert from_stream.finish_reason == whole.choices[0].finish_reason
    assert (from_stream.message.content or "") == (whole.choices[0].message.content or "")
    assert called(from_stream.message) == called(whole.choices[0].message)


def called(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]


def test_a_whole_chat_has_every_required_key() -> None:
    answer = complete(CALLS[1:])
    assert set(answer) >= {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
    [choice] = answer["choices"]
    assert set(choice) == {"index", "message", "finish_reason", "stop_reason", "logprobs"}
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": (),
        "tool_calls": (
            {
                "id": "call_a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Rom"}'},
            },
            {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ),
    }


def test_the_service_tier_that_was_asked_for_is_told() -> None:
    formatter = ChatFormatter(ChatRequest("m", (), service_tier="flex"), "chatcmpl-1")
    stream = formatter.stream("m")
    told = chunks(stream.event(TextDelta("a")) + stream.event(FINISHED))
    assert {chunk["service_tier"] for chunk in told} == {"flex"}


def test_a_failure_is_sent_and_then_done() -> None:
    formatter = ChatStream("chatcmpl-1", "m", 123)
    sent = formatter.event(TextDelta("a")) + formatter.event(Failed(model_crashed("m")))
    last = chunks(sent)[-1]
    assert last["error"]["code"] == "model_crashed"
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert formatter.finished


def test_a_heartbeat_is_a_chunk_without_text() -> None:
    for formatter in (ChatStream("i", "m", 1), CompletionStream("i", "m", 1)):
        sent = formatter.heartbeat()
        assert sent.startswith(b"data: {")
        [choice] = json.loads(sent.removeprefix(b"data: "))["choices"]
        assert choice["finish_reason"] is None
        assert choice.get("text", choice.get("delta", {}).get("content")) == ""


def test_streamed_completions_index_their_prompts() -> None:
    formatter = CompletionStream("cmpl-1", "m", 123, choices=2, include_usage=True)
    sent = formatter.opening()
    echo = PromptText("to be", 0)
    for event in (echo, TextDelta(" or", 0), TextDelta("x", 1), Finished("stop", Usage(1, 2), index=1)):
        sent += formatter.event(event)
    assert not formatter.finished
    sent += formatter.event(Finished("length", Usage(3, 4), index=0))
    *pieces, usage = chunks(sent)
    for chunk in pieces:
        assert chunk["object"] == "text_completion"
        ending = {"stop_reason"} if chunk["choices"][0]["finish_reason"] else set()
        assert set(chunk["choices"][0]) == {"index", "text", "logprobs", "finish_reason", *ending}
    assert [(c["choices"][0]["index"], c["choices"][0]["text"]) for c in pieces] == [
        (0, "to be"),
        (0, " or"),
        (1, "x"),
        (1, ""),
        (0, ""),
    ]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 10)


def test_parts_of_characters_have_keys_of_their_own() -> None:
    def token(written: bytes) -> Token:
        return Token(written.decode("utf-8", "replace"), written)

    parts = [token(written) for written in (b"\xf0\x9f", b" \xf0\x9f", b"\xe2", "\ufffd".encode(), b"a")]
    top = tuple((part, -float(at)) for at, part in enumerate(parts, 1))
    shown = CompletionLogprobs().add([TokenLogprob(parts[0], -1.0, top)], first=parts[2])
    assert shown is not None
    assert shown["tokens"] == ["bytes:\\xe2", "bytes:\\xf0\\x9f"]
    expected = {"bytes:\\xf0\\x9f": -1, "bytes: \\xf0\\x9f": -2, "bytes:\\xe2": -3, "\ufffd": -4, "a": -5}
    assert shown["top_logprobs"] == [None, expected]


def test_whole_completions_have_a_choice_for_every_prompt() -> None:
    choices = [
        CollectedChoice(
            (TextPart(" or not"),),
            (),
            Finished("length", Usage(1, 2)),
            prompt=(PromptText("to"), PromptText(" be")),
        ),
        CollectedChoice((TextPart("x"),), (), Finished("stop", Usage(3, 4))),
    ]
    wire = CompletionRequest("m", Prompts(("to be", "")))
    answer = CompletionFormatter(wire, "cmpl-1", created=123).whole("m", choices)
    read = wire_types.Completion.model_validate_json(json.dumps(answer), strict=True)
    assert [choice.text for choice in read.choices] == ["to be or not", "x"]
    assert answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["total_tokens"] == 10
