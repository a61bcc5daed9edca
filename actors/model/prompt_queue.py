"""Which prompt is prepared next: short ones pass long ones, which are not left waiting for ever."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from greenroom.schemas.messages import Message, TextPart
from greenroom.schemas.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    RawInput,
    RequestInput,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)
from greenroom.schemas.response_format import JsonSchemaFormat, LarkFormat, ResponseFormat

T = TypeVar("T")

MAX_SHORT = 65_536
"""Cost of a short prompt at most, in characters of text: as much is tokenized in some 40 ms."""
MAX_GRAMMAR = 16_384
"""Characters of a grammar that is compiled as quickly."""
MAX_SCHEMA = 1_000
"""Values of a schema that is compiled as quickly."""
MAX_PASSING = 16
"""Short prompts that pass a long one at most; then it is its turn."""

_PART_COST = 64
"""Characters that are tokenized in the time in which a template writes one message or part."""


class PromptQueue(Generic[T]):
    """Prompts that wait for one thread. May be used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._short: deque[T] = deque()
        self._long: deque[T] = deque()
        self._passed = 0
        self._ended = False

    def put(self, prompt: T, *, long: bool) -> None:
        """Have a prompt wait behind those of its kind."""
        with self._changed:
            (self._long if long else self._short).append(prompt)
            self._changed.notify()

    def end(self) -> None:
        """Let `take` return None when no prompt is left."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> T | None:
        """Wait for a prompt and return it; None at the end."""
        with self._changed:
            while not (self._short or self._long or self._ended):
                self._changed.wait()
            if self._short and not (self._long and self._passed >= MAX_PASSING):
                self._passed += bool(self._long)
                return self._short.popleft()
            self._passed = 0
            return self._long.popleft() if self._long else None

    def clear(self) -> list[T]:
        """Remove and return all that wait."""
        with self._changed:
            waiting = [*self._short, *self._long]
            self._short.clear()
            self._long.clear()
            return waiting


def is_long(request: InferenceRequest) -> bool:
    """Return whether preparing a request takes so long that short ones should not wait for it."""
    return _has_much_text(request.input) or _is_large(request.response_format)


def _has_much_text(asked: RequestInput) -> bool:
    match asked:
        case ChatInput():
            return _is_long_conversation(asked.messages)
        case RawInput(prompt):
            return isinstance(prompt, str) and len(prompt) > MAX_SHORT
        case EmbeddingInput(texts):
            return _exceed(len(text) for text in texts)
        case ScoreInput(pairs):
            return _exceed(len(query) + len(document) for query, document in pairs)
        case SpeechInput(text):
            return len(text) > MAX_SHORT
        case TranscriptionInput():
            return False


def _is_long_conversation(messages: Sequence[Message]) -> bool:
    """Return whether it has much text, or an image, a document or a recording that must be decoded."""
    cost = 0
    for message in messages:
        cost += _PART_COST
        for part in message.content:
            if not isinstance(part, TextPart):
                return True
            cost += _PART_COST + len(part.text)
            if cost > MAX_SHORT:
                return True
    return cost > MAX_SHORT


def _exceed(lengths: Iterable[int]) -> bool:
    cost = 0
    return any((cost := cost + _PART_COST + length) > MAX_SHORT for length in lengths)


def _is_large(constraint: ResponseFormat | None) -> bool:
    """Return whether a constraint takes long to compile: 12,000 alternatives of a grammar take 0.7 s."""
    match constraint:
        case LarkFormat(grammar):
            return len(grammar) > MAX_GRAMMAR
        case JsonSchemaFormat(schema):
            return _has_many_values(schema)
        case _:
            return False


def _has_many_values(schema: Any) -> bool:
    seen, waiting = 0, [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            seen += len(value)
            if seen > MAX_SCHEMA:
                return True
            waiting += value.values() if isinstance(value, dict) else value
    return False
