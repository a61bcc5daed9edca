"""Which prompt is prepared next: short ones pass long ones, which are not left waiting for ever."""

from __future__ import annotations

import itertools
import threading
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import attrs

from greenroom.engine.fairness.fair_queue import FairQueue, WaitingPrompt
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
WAIT_COST = MAX_SHORT // 2
"""Of each look at what a prompt waits for, 20 ms at most. If that cost nothing, a client that had less than
others would have every turn until its prompt is done, though that may wait for one of theirs."""
MAX_COUNTED = 16 * MAX_SHORT
"""Cost up to which prompts are told apart: to count takes time, too."""

_PART_COST = 64
"""Characters that are tokenized in the time in which a template writes one message or part."""


@attrs.define(eq=False)
class QueuedPrompt(Generic[T]):
    """A prompt and what its place depends on.

    Args:
        serial: Tells prompts apart; earlier ones have smaller ones.
        cost: See `cost_of`.
        begun: A slice of it is done, and its client has been charged for all that can be done at once.
        waits: Something else worked for it when it was put back.
    """

    prompt: T
    serial: int
    client: str
    cost: int
    begun: bool = False
    waits: bool = False

    @property
    def long(self) -> bool:
        """Whether preparing it takes so long that short ones should not wait for it."""
        return self.cost > MAX_SHORT


class PromptQueue(Generic[T]):
    """Prompts that wait for one thread. May be used from any thread.

    Of those that are short, and of those that are long, clients take turns by `FairQueue`. A long one may be
    put back when a slice of it is done; once it has been passed by as many as may, short ones and slices
    take turns.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._short: _Turns[T] = _Turns()
        self._long: _Turns[T] = _Turns()
        self._serials = itertools.count()
        self._passed = 0
        self._ended = False

    def put(self, prompt: T, cost: int, client: str = "") -> None:
        """Have a prompt wait."""
        with self._changed:
            queued = QueuedPrompt(prompt, next(self._serials), client, cost)
            (self._long if queued.long else self._short).add(queued)
            self._changed.notify()

    def put_back(self, queued: QueuedPrompt[T], *, behind: bool = False) -> None:
        """Have a prompt wait again, of which a slice is done.

        Args:
            behind: All that wait, since something else works for it; else it has its old place.
        """
        with self._changed:
            queued.waits = behind
            if behind:
                queued.serial = next(self._serials)
            elif queued.long:
                self._passed = MAX_PASSING - 1
            (self._long if queued.long else self._short).add(queued)

    def end(self) -> None:
        """Let `take` return None when no prompt is left."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> QueuedPrompt[T] | None:
        """Wait for a prompt and return it; None at the end."""
        with self._changed:
            while not (self._short or self._long or self._ended):
                self._changed.wait()
            if self._short and not (self._long and self._passed >= MAX_PASSING):
                self._passed += bool(self._long)
                return self._short.take()
            self._passed = 0
            return self._long.take() if self._long else None

    def clear(self) -> list[T]:
        """Remove and return all that wait."""
        with self._changed:
            return [queued.prompt for queued in (*self._short.clear(), *self._long.clear())]


class _Turns(Generic[T]):
    """Prompts of one kind, the oldest first."""

    def __init__(self) -> None:
        self._waiting: list[QueuedPrompt[T]] = []
        self._fair_queue = FairQueue()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, queued: QueuedPrompt[T]) -> None:
        if not self._waiting:
            self._fair_queue.forget()
        insort(self._waiting, queued, key=lambda other: other.serial)

    def take(self) -> QueuedPrompt[T]:
        """Remove and return the next: of a client's, the one that costs least, or the oldest, in turns."""
        waiting = [WaitingPrompt(each.client, str(each.serial), each.cost) for each in self._waiting]
        queued = self._waiting.pop(self._fair_queue.choose(waiting))
        further = WAIT_COST if queued.waits else 0
        self._fair_queue.charge([queued.client], further if queued.begun else queued.cost)
        queued.begun = True
        return queued

    def clear(self) -> list[QueuedPrompt[T]]:
        waiting, self._waiting = self._waiting, []
        return waiting


def cost_of(request: InferenceRequest) -> int:
    """Return what preparing a request takes, in characters of text that are tokenized meanwhile."""
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
    """Yield the costs of its parts; an image, a document or a recording must be decoded."""
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
