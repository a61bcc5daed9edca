"""The inspector: the last requests with their prompts and answers, in memory only, for debugging.

What it holds is prompts and answers: it is never logged or written, and ends with the process.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections import OrderedDict
from typing import Any

import attrs

from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.explanation import Explanation
from greenroom.schemas.events.result_events import ToolResult
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem

INSPECTED_BYTES = 64 * 1024 * 1024  # Most bytes that the inspector holds

_EVENT_BYTES = 200  # Bytes that an event takes beside its text, about

_TOKEN_BYTES = 8  # Bytes that a token id takes in a tuple


@attrs.define(eq=False)
class Inspection:
    """A request with all that is known about it.

    Args:
        serial: Number of the request since the start, from 1.
        request_id: Id of the request, as in its `x-request-id`.
        tokens: Token ids of the prompt.
        outputs: Raw output and its token ids, by choice.
        state: `running`, `finished`, `failed` or `ended` (refused, or its client has left).
        status: HTTP status; None until it is known.
        is_submitted: True once an engine has been asked to answer it.
        figures: Figures of the request's log line, by name.
        explanation: Explanation of its cost; None before its end, or if none is given.
        nbytes: Approximate memory in bytes.
    """

    serial: int
    request_id: str
    began: float
    route: str = ""
    body: bytes = b""
    body_bytes: int = 0
    client: str = ""
    model: str = ""
    prompt: str = ""
    tokens: tuple[int, ...] = ()
    outputs: dict[int, tuple[str, tuple[int, ...]]] = attrs.field(factory=dict)
    events: list[tuple[float, InferenceEvent]] = attrs.field(factory=list)
    left_out: int = 0
    state: str = "running"
    status: int | None = None
    is_submitted: bool = False
    figures: dict[str, Any] = attrs.field(factory=dict)
    explanation: Explanation | None = None
    problem: Problem | None = None
    failure: bytes = b""
    nbytes: int = 500


class Inspector:
    """The last requests, limited in number and in bytes; the oldest are dropped first.

    Its methods are called on the event loop only, and ignore requests that were dropped.

    Args:
        budget: Maximum bytes of all requests; one request takes at most a quarter of it.
        clock: Clock with Unix time in seconds.
    """

    def __init__(self, count: int, budget: int = INSPECTED_BYTES, clock: Any = time.time) -> None:
        self.budget = budget
        self.nbytes = 0
        self._count = count
        self._clock = clock
        self._serial = itertools.count(1)
        self._kept: OrderedDict[str, Inspection] = OrderedDict()

    @property
    def share(self) -> int:
        return self.budget // 4

    def begin(self, request_id: str, route: str, body: bytes, body_bytes: int) -> None:
        """Record a request whose body has arrived. `body_bytes`: length of the whole body."""
        record = self._open(request_id)
        kept = body[: self.share // 2]
        record.route, record.body, record.body_bytes = route, bytes(kept), body_bytes
        self._charge(record, len(kept))

    def prepare(self, request: InferenceRequest) -> None:
        """Record that a model has received a request, which may have come without a body."""
        record = self._open(request.id)
        record.client, record.model = request.client, str(request.key)

    def prompt(self, request_id: str, tokens: tuple[int, ...], text: str) -> None:
        if (record := self._kept.get(request_id)) is not None:
            room = max(0, self.share - record.nbytes)
            record.prompt = text[: room // 2]
            record.tokens = tokens[: room // 2 // _TOKEN_BYTES]
            self._charge(record, len(record.prompt) + len(record.tokens) * _TOKEN_BYTES)

    def submit(self, request_id: str) -> None:
        """Record that an engine has been asked to answer a request, whose end it will report."""
        if (record := self._kept.get(request_id)) is not None:
            record.is_submitted = True

    def event(self, request_id: str, event: InferenceEvent) -> None:
        record = self._kept.get(request_id)
        if record is None:
            return
        size = _EVENT_BYTES + _text_bytes(event)
        if isinstance(event, Finished):
            size += len(event.raw) + len(event.tokens) * _TOKEN_BYTES
            if record.nbytes + size <= self.share:
                record.outputs[event.index] = event.raw, tuple(event.tokens)
        if record.nbytes + size > self.share:
            record.left_out += 1
            return
        record.events.append((self._clock(), event))
        self._charge(record, size)

    def end(
        self,
        request_id: str,
        figures: dict[str, Any],
        problem: Problem | None,
        explanation: Explanation | None = None,
    ) -> None:
        if (record := self._kept.get(request_id)) is not None:
            record.state = "finished" if problem is None else "failed"
            record.figures, record.problem, record.explanation = figures, problem, explanation

    def answered(self, request_id: str, status: int, failure: bytes = b"") -> None:
        """Record the status of a response, and the body of one that refused the request."""
        if (record := self._kept.get(request_id)) is not None:
            record.status, record.failure = status, failure[:10_000]
            self._charge(record, len(record.failure))

    def close(self, request_id: str) -> None:
        """Record that a response has ended, or that its client has left."""
        record = self._kept.get(request_id)
        if record is not None and record.state == "running" and not record.is_submitted:
            record.state = "failed" if record.status is not None and record.status >= 400 else "ended"

    def listed(self) -> list[Inspection]:
        return list(reversed(self._kept.values()))

    def find(self, name: str) -> Inspection | None:
        """Return a copy of the request with that id or number, for any thread; None if there is none."""
        found = self._kept.get(name)
        found = found or next((each for each in self._kept.values() if str(each.serial) == name), None)
        return found and attrs.evolve(found, outputs=dict(found.outputs), events=list(found.events))

    def _open(self, request_id: str) -> Inspection:
        record = self._kept.get(request_id)
        if record is None:
            record = Inspection(next(self._serial), request_id, self._clock())
            self._kept[request_id] = record
            self.nbytes += record.nbytes
            self._shrink()
        return record

    def _charge(self, record: Inspection, size: int) -> None:
        record.nbytes += size
        self.nbytes += size
        self._shrink()

    def _shrink(self) -> None:
        while len(self._kept) > self._count or (self.nbytes > self.budget and len(self._kept) > 1):
            _, oldest = self._kept.popitem(last=False)
            self.nbytes -= oldest.nbytes


def inspection_summary(record: Inspection) -> dict[str, Any]:
    """Return a request's row in a list, as a JSON-like object."""
    return {
        "id": record.request_id,
        "serial": record.serial,
        "state": record.state,
        "status": record.status,
        "route": record.route,
        "model": record.model,
        "client": record.client,
        "began_at": round(record.began, 3),
        "prompt_tokens": len(record.tokens),
        "events": len(record.events) + record.left_out,
        "nbytes": record.nbytes,
    }


def inspection_body(record: Inspection) -> dict[str, Any]:
    """Return all that is known about a request, as a JSON-like object."""
    problem = record.problem
    return {
        **inspection_summary(record),
        "body": record.body.decode("utf-8", "replace"),
        "body_bytes": record.body_bytes,
        "prompt": record.prompt,
        "tokens": list(record.tokens),
        "outputs": [
            {"index": index, "raw": raw, "tokens": list(tokens)}
            for index, (raw, tokens) in sorted(record.outputs.items())
        ],
        "events": [
            {
                "at": round(at, 4),
                "type": type(event).__name__,
                **attrs.asdict(event, filter=_is_shown, value_serializer=_plain),
            }
            for at, event in record.events
        ],
        "events_left_out": record.left_out,
        "figures": record.figures,
        "problem": None if problem is None else {"code": problem.code, "detail": problem.detail},
        "failure": record.failure.decode("utf-8", "replace"),
    }


def _is_shown(field: attrs.Attribute[Any], _value: Any) -> bool:
    return field.name not in ("raw", "tokens", "parameters", "explanation")


def _plain(_owner: Any, _field: Any, value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _text_bytes(event: InferenceEvent) -> int:
    fields = attrs.fields(type(event))
    values = (getattr(event, field.name) for field in fields)
    size = sum(len(value) for value in values if isinstance(value, str | bytes))
    entries = getattr(event, "logprobs", None) or ()
    if isinstance(event, Failed):
        size += len(event.problem.detail)
    if isinstance(event, ToolResult):
        size += sum(len(getattr(part, "text", "") or getattr(part, "data", "")) for part in event.content)
    return size + sum(_EVENT_BYTES * (1 + len(entry.top)) for entry in entries)
