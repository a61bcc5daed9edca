"""Queue of requests that wait for memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import attrs

from greenroom.engine.fairness.client_shares import HeldRows
from greenroom.engine.fairness.fair_queue import FairQueue
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest


@attrs.define(eq=False)
class QueueEntry:
    """A sequence's entry in the waiting queue, kept while the sequence runs.

    Args:
        tokens: Tokens per choice for which memory is reserved while it runs.
        choices: Number of parallel samples that start with it.
    """

    sequence: Sequence
    client: str = ""
    conversation: str = ""
    tokens: int = 0
    choices: int = 1

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
    """Waiting requests: preempted sequences resume first, then clients and conversations take turns.

    Among preempted sequences, the one whose client holds the fewest rows is first, then the oldest. A new
    request passes it only if its client holds fewer rows. The first entry keeps its place until its memory is
    free, however much it needs, so smaller requests cannot overtake it forever.
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

    def peek(self, held: HeldRows | None = None) -> QueueEntry | None:
        """Return the next entry.

        Args:
            held: Rows that each client holds; None if all waiting entries fit, so that the order does not
                matter.
        """
        if held is None:
            return next(iter(self), None)
        if not self._preempted:
            return self._new.choose()
        rows = [held.of(entry.client) for entry in self._preempted]
        fewest = min(rows)
        fewer = [entry for entry in self._new if held.of(entry.client) < fewest]
        return self._new.choose(fewer) or self._preempted[rows.index(fewest)]

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
