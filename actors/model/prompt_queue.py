"""The queue of prompts to prepare: short ones overtake long ones, but only a limited number of times."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import attrs

from greenroom.engine.resources.fair_queue import FairQueue
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    JsonSchemaFormat,
    LarkFormat,
    RawInput,
    RequestInput,
    ResponseFormat,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)

T = TypeVar("T")

MAX_SHORT = 65_536
"""Maximum cost of a short prompt, in characters of text; tokenizing that many takes about 40 ms."""
MAX_GRAMMAR = 16_384  # Maximum length, in characters, of a grammar that compiles as fast
MAX_SCHEMA = 1_000  # Maximum number of values in a schema that compiles as fast
MAX_PASSING = 16  # Maximum number of short prompts that overtake a long one
WAIT_COST = MAX_SHORT // 2
"""Cost of each poll for work that a prompt waits for, 20 ms at most. If polls were free, a client with little
usage would be chosen every time until its prompt is done, even while that waits for another client's."""
MAX_COUNTED = 16 * MAX_SHORT  # Cost above which prompts count as equal, since counting takes time too

_PART_COST = 64
"""Cost of a message or part in a template, as the number of characters tokenized in the same time."""


@attrs.define(eq=False)
class QueuedPrompt(Generic[T]):
    """A queued prompt with its scheduling data.

    Args:
        cost: Cost of preparation (see `cost_of`).
        begun: True once its first step is done and its client has been charged its cost.
        waits: True if it waited for other work when it was put back.
    """

    prompt: T
    serial: int
    client: str
    cost: int
    begun: bool = False
    waits: bool = False

    @property
    def long(self) -> bool:
        """True if preparing it takes too long for short prompts to wait for it."""
        return self.cost > MAX_SHORT


class PromptQueue(Generic[T]):
    """Prompts that wait for a tokenizer thread. Any thread may use it.

    Short prompts and long prompts are queued apart, and `FairQueue` chooses among clients within each. A long
    prompt may be put back after each step. Once the maximum number of short prompts has overtaken it, short
    prompts and its steps alternate.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._short: FairQueue[QueuedPrompt[T]] = _fair_queue()
        self._long: FairQueue[QueuedPrompt[T]] = _fair_queue()
        self._serials = itertools.count()
        self._passed = 0
        self._ended = False

    def put(self, prompt: T, cost: int, client: str = "") -> None:
        with self._changed:
            queued = QueuedPrompt(prompt, next(self._serials), client, cost)
            (self._long if queued.long else self._short).add(queued)
            self._changed.notify()

    def put_back(self, queued: QueuedPrompt[T], *, behind: bool = False) -> None:
        """Return a prompt to the queue after one of its steps. `behind`: True to queue it last, because it
        waits for other work; False to restore its old position.
        """
        with self._changed:
            queued.waits = behind
            if behind:
                queued.serial = next(self._serials)
            elif queued.long:
                self._passed = MAX_PASSING - 1
            (self._long if queued.long else self._short).add(queued)

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> QueuedPrompt[T] | None:
        """Wait for the next prompt and remove it; return None at the end."""
        with self._changed:
            while not (self._short or self._long or self._ended):
                self._changed.wait()
            if self._short and not (self._long and self._passed >= MAX_PASSING):
                self._passed += bool(self._long)
                return _take(self._short)
            self._passed = 0
            return _take(self._long) if self._long else None

    def clear(self) -> list[T]:
        with self._changed:
            return [queued.prompt for queued in (*self._short.clear(), *self._long.clear())]


def _fair_queue() -> FairQueue[QueuedPrompt[T]]:
    return FairQueue(remaining=lambda queued: queued.cost, order=lambda queued: queued.serial)


def _take(queue: FairQueue[QueuedPrompt[T]]) -> QueuedPrompt[T]:
    """Remove and return the next prompt, and charge its client."""
    queued = next(queue.in_turn())
    further = WAIT_COST if queued.waits else 0
    queue.charge([queued], further if queued.begun else queued.cost)
    queue.remove(queued)
    queued.begun = True
    return queued


def cost_of(request: InferenceRequest) -> int:
    """Return the cost of preparing a request, as the number of characters tokenized in the same time."""
    is_large = _is_large(request.response_format)
    return _input_cost(request.input) + (MAX_SHORT + 1 if is_large else 0)


def _input_cost(asked: RequestInput) -> int:
    match asked:
        case ChatInput():
            return _sum(_conversation_costs(asked.messages))
        case RawInput(prompt):
            return len(prompt) if isinstance(prompt, str) else 0
        case EmbeddingInput(texts):
            return _sum(_PART_COST + len(text) for text in texts)
        case ScoreInput(pairs):
            return _sum(_PART_COST + len(query) + len(document) for query, document in pairs)
        case SpeechInput(text):
            return len(text)
        case TranscriptionInput():
            return 0


def _conversation_costs(messages: Sequence[Message]) -> Iterator[int]:
    """Yield the costs of a conversation's messages and parts; files cost more, since they must be decoded."""
    for message in messages:
        yield _PART_COST
        for part in message.content:
            yield _PART_COST + (len(part.text) if isinstance(part, TextPart) else MAX_SHORT)


def _sum(costs: Iterable[int]) -> int:
    total = 0
    for cost in costs:
        total += cost
        if total > MAX_COUNTED:
            break
    return total


def _is_large(constraint: ResponseFormat | None) -> bool:
    """Return whether a constraint is slow to compile: 12,000 alternatives of a grammar take 0.7 s."""
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
