"""Queue of requests that wait for a row or for memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

import attrs

from greenroom.engine.fairness.client_shares import Holdings
from greenroom.engine.fairness.fair_queue import FairQueue
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest


@attrs.define(eq=False)
class QueueEntry:
    """A sequence's entry in the waiting queue, kept while the sequence runs.

    Args:
        tokens: Tokens per choice for which memory is reserved while it runs.
        choices: Number of parallel samples that start with it.
        passed: Number of entries that have passed it since they fit into memory and it did not.
    """

    sequence: Sequence
    client: str = ""
    conversation: str = ""
    tokens: int = 0
    choices: int = 1
    passed: int = 0

    @property
    def is_overdrawn(self) -> bool:
        """True once the sequence has outgrown its reserved tokens."""
        return self.sequence.length > self.tokens

    def preempt(self, max_reserved_tokens: int) -> None:
        """Preempt the sequence; it is later recomputed from its prompt and the tokens generated so far."""
        sequence = self.sequence
        sequence.preempt()
        rest = min(sequence.max_tokens - sequence.generated, max_reserved_tokens)
        self.tokens = len(sequence.prefill_tokens) + rest


class WaitingQueue:
    """Waiting requests: those of the client that holds the fewest rows are first.

    Among these, preempted sequences resume first, the oldest before the others, then clients and
    conversations take turns.
    """

    def __init__(self) -> None:
        self._preempted: list[QueueEntry] = []
        self._new: FairQueue[QueueEntry] = FairQueue(
            remaining=lambda entry: len(entry.sequence.prefill_tokens),
            conversation=lambda entry: entry.conversation,
        )

    def __len__(self) -> int:
        return len(self._preempted) + len(self._new)

    def add(self, entry: QueueEntry) -> None:
        """Add a new request or a preempted sequence."""
        if entry.sequence.preempted:
            self._preempted.append(entry)
            self._preempted.sort(key=lambda preempted: preempted.sequence.serial)
        else:
            self._new.add(entry)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._preempted, self._new)

    def peek(self, held: Holdings | None = None, passed: Collection[QueueEntry] = ()) -> QueueEntry | None:
        """Return the next entry.

        Args:
            held: Rows that each client holds; None if all waiting entries fit, so that the order does not
                matter.
            passed: Entries that do not fit into memory now, and are passed over.
        """
        waiting = [entry for entry in self if entry not in passed]
        if held is None or not waiting:
            return next(iter(waiting), None)
        fewest = min(held.of(entry.client) for entry in waiting)
        first = [entry for entry in waiting if held.of(entry.client) == fewest]
        resumed = next((entry for entry in first if entry.sequence.preempted), None)
        return resumed or self._new.choose(first)

    def pop(self, entry: QueueEntry) -> None:
        """Remove an admitted entry."""
        if entry in self._preempted:
            self._preempted.remove(entry)
        else:
            self._new.charge([entry], entry.tokens * entry.choices)
            self._new.remove(entry)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence's entry, if there is one."""
        self._preempted = [entry for entry in self._preempted if entry.sequence is not sequence]
        for entry in [entry for entry in self._new if entry.sequence is sequence]:
            self._new.remove(entry)


def conversation_key(request: InferenceRequest) -> str:
    """Return the key of the request's conversation; empty if the request has no user message.

    No protocol identifies conversations, but every turn repeats the first user message.
    """
    if not isinstance(request.input, ChatInput):
        return ""
    opening = next((message for message in request.input.messages if message.role == "user"), None)
    return f"{hash(opening.content):x}" if opening is not None else ""
