"""Spans of requests for OpenTelemetry, named by its GenAI conventions, if the program has loaded its SDK.

A request's phases become children at its end, when their times are known, so that no token costs anything. A
span's place is handed on as a `TraceContext`: no context outlives a step of a generator.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from greenroom.schemas.events.events import Failed, Finished, Usage
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    RawInput,
    ScoreInput,
    SpeechInput,
    TraceContext,
    TranscriptionInput,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

_OPERATIONS = {
    ChatInput: "chat",
    RawInput: "text_completion",
    EmbeddingInput: "embeddings",
    ScoreInput: "rerank",
    SpeechInput: "speech",
    TranscriptionInput: "transcription",
}
_LONGEST = 8_192  # Characters of a prompt or an answer in a span
_NANOSECONDS = 10**9

_tracer: Tracer | None = None
_shows_content = False


def follow_program(*, content: bool) -> None:
    """Make spans from now on if the SDK is loaded; without it, nothing of OpenTelemetry is imported.

    Args:
        content: True to put prompts and answers into the spans.
    """
    global _tracer, _shows_content
    _tracer, _shows_content = None, content
    if "opentelemetry.sdk.trace" in sys.modules:
        from opentelemetry import trace

        _tracer = trace.get_tracer("greenroom")


def place_in_trace(given: TraceContext | None) -> TraceContext | None:
    """Return the place of the program's current span, else the given one of a client, to be handed on."""
    if _tracer is None:
        return given
    from opentelemetry.trace import get_current_span

    return place_of(get_current_span(), given)


def place_of(span: Span, given: TraceContext | None = None) -> TraceContext | None:
    """Return the place of a span; the given one if the program has the SDK without a provider."""
    at = span.get_span_context()
    if not at.is_valid:
        return given
    place = f"00-{at.trace_id:032x}-{at.span_id:016x}-{int(at.trace_flags):02x}"
    return TraceContext(place, at.trace_state.to_header())


def _context_of(place: TraceContext | None) -> Context | None:
    """Return the context below a place; None for that of the program."""
    if place is None:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

    _, trace_id, span_id, flags, *_ = place.traceparent.split("-")
    state = TraceState.from_header([place.tracestate])
    at = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state)
    return set_span_in_context(NonRecordingSpan(at), Context())


def begin_span(request: InferenceRequest, operation: str = "") -> RequestSpan | None:
    """Return the started span of a request; None if no spans are made.

    Args:
        operation: Name of the operation, by default that of the input.
    """
    return None if _tracer is None else RequestSpan(_tracer, request, operation)


class RequestSpan:
    """The span of one request.

    Attributes:
        trace: Place of what is done for it.
    """

    def __init__(self, tracer: Tracer, request: InferenceRequest, operation: str) -> None:
        self._tracer = tracer
        self._began = time.time_ns()
        self._found = self._admitted = self._granted = 0
        self._is_open = self._is_here = True
        self._operation = operation = operation or _OPERATIONS[type(request.input)]
        values = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "greenroom",
            "gen_ai.request.model": request.key.model,
            "gen_ai.request.choice.count": request.choices,
            "greenroom.request.id": request.id,
        }
        for name in ("temperature", "top_p", "max_tokens", "seed"):
            if (value := request.overrides.get(name)) is not None:
                values[f"gen_ai.request.{name}"] = value
        if _shows_content and isinstance(request.input, ChatInput):
            values["gen_ai.input.messages"] = _written(request.input.messages)
        self._span = tracer.start_span(
            f"{operation} {request.key.model}",
            _context_of(request.trace),
            attributes=values,
            start_time=self._began,
        )
        self.trace = place_of(self._span, request.trace)

    def found(self, *, is_here: bool = True) -> None:
        """Record that the model is known, and prepares the prompt. `is_here`: False for another machine's."""
        self._found, self._is_here = self._found or time.time_ns(), is_here

    def admitted(self) -> None:
        self._admitted = self._admitted or time.time_ns()

    def granted(self) -> None:
        self._granted = self._granted or time.time_ns()

    def end(self, last: Finished | Failed | None, model: str, usage: Usage | None = None) -> None:
        """End the span, once.

        Args:
            last: Last event; None if the request was given up.
            model: Model that has answered.
            usage: Usage of all choices.
        """
        if not self._is_open:
            return
        self._is_open = False
        now = time.time_ns()
        if self._span.is_recording():
            self._span.update_name(f"{self._operation} {model}")
            self._span.set_attributes(self._outcome(last, model, usage))
            if isinstance(last, Failed):
                from opentelemetry.trace import StatusCode

                self._span.set_status(StatusCode.ERROR, last.problem.code)
            self._add_phases(last, now)
        self._span.end(now)

    def _outcome(self, last: Finished | Failed | None, model: str, usage: Usage | None) -> dict[str, Any]:
        values: dict[str, Any] = {"gen_ai.response.model": model}
        match last:
            case Finished(reason):
                values["gen_ai.response.finish_reasons"] = [reason]
                if _shows_content:
                    values["gen_ai.output.messages"] = last.raw[:_LONGEST]
            case Failed(problem):
                values["error.type"] = problem.code
            case None:
                values["gen_ai.response.finish_reasons"] = ["cancelled"]
        if usage is not None:
            values["gen_ai.usage.input_tokens"] = usage.prompt
            values["gen_ai.usage.output_tokens"] = usage.generated
            values["gen_ai.usage.cache_read.input_tokens"] = usage.cached
        return values

    def _add_phases(self, last: Finished | Failed | None, now: int) -> None:
        context = _context_of(self.trace)
        timing = None if last is None else last.timing
        decode = now if timing is None else now - int(timing.decode * _NANOSECONDS)
        prefill = decode if timing is None else decode - int(timing.prefill * _NANOSECONDS)
        computed = (("prefill", prefill, decode), ("decode", decode, now))
        for name, start, end in (
            ("wait", self._began, self._granted),
            ("prepare", self._found, self._admitted),
            *(computed if self._is_here else (("remote", self._granted, now),)),
        ):
            if start and start < end:
                self._tracer.start_span(name, context, start_time=start).end(end)


def _written(messages: tuple[Message, ...]) -> str:
    texts = [
        {
            "role": message.role,
            "content": "".join(each.text for each in message.content if isinstance(each, TextPart)),
        }
        for message in messages
    ]
    return json.dumps(texts, ensure_ascii=False)[:_LONGEST]


@contextmanager
def tool_span(name: str, call_id: str, trace: TraceContext | None) -> Iterator[ToolSpan]:
    """Make the call of a tool a span in the block, which is the program's current one meanwhile."""
    if _tracer is None:
        yield ToolSpan(trace)
        return
    from opentelemetry.trace import use_span

    values = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
    }
    span = _tracer.start_span(f"execute_tool {name}", _context_of(trace), attributes=values)
    with use_span(span, end_on_exit=True):
        yield ToolSpan(place_of(span, trace), span)


class ToolSpan:
    """The span of a call, or only the place of its request.

    Attributes:
        trace: Place that the call hands on; None without one.
    """

    def __init__(self, trace: TraceContext | None, span: Span | None = None) -> None:
        self.trace = trace
        self._span = span

    def fail(self, code: str) -> None:
        if self._span is not None:
            self._span.set_attribute("error.type", code)
