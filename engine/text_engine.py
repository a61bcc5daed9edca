"""A loaded text model and the requests it generates for. Everything here runs on the model's one thread."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
import structlog

from greenroom.engine.batch.group import BatchGroup, Joining
from greenroom.engine.batch.policies import GroupingPolicy, PrefillPolicy
from greenroom.engine.batch.prefill import PrefillQueue
from greenroom.engine.batch.row import Detokenizer, Processor, Row
from greenroom.engine.sampling import RowSampling
from greenroom.schemas.events import Failed, GenerationEvent
from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import GenerationRequest, PreparedInput, RawInput

Events = list[tuple[str, GenerationEvent]]
"""Events with the ids of the requests they belong to, in order."""

_CLEAR_STEPS = 512
"""Steps after which MLX gives buffers back that it keeps for reuse, as mlx-lm does."""

log = structlog.get_logger(__name__)


class Voice:
    """Turns one request's tokens into text and its text into deltas: what the engine needs of an adapter.

    Args:
        new_processor: Makes the stream processor of a request.
        new_detokenizer: Makes a detokenizer that continues after the given tokens.
    """

    def __init__(
        self,
        new_processor: Callable[[PreparedInput, Callable[[], str]], Processor],
        new_detokenizer: Callable[[tuple[int, ...]], Detokenizer],
    ) -> None:
        self.new_processor = new_processor
        self.new_detokenizer = new_detokenizer


class TextEngine:
    """Continuous batching: `step` decodes one token for every running row and a slice of the waiting prompts.

    Args:
        model: One of mlx-lm's models, evaluated on this thread.
        voice: How tokens become events.
    """

    def __init__(
        self,
        model: Any,
        voice: Voice,
        prefill: PrefillPolicy | None = None,
        grouping: GroupingPolicy | None = None,
    ) -> None:
        self._model = model
        self._voice = voice
        self._grouping = grouping or GroupingPolicy()
        self._prefill = PrefillQueue(model, prefill)
        self._groups: list[BatchGroup] = []
        self._rows: dict[str, Row] = {}
        self._events: Events = []
        self._steps = 0

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self._events or self._groups or len(self._prefill))

    @property
    def running(self) -> int:
        """Requests that are not finished."""
        return len(self._rows)

    def submit(
        self, request: GenerationRequest, prepared: PreparedInput, parameters: GenerationParameters
    ) -> None:
        """Take on a request; its events come from `step`, up to one Finished or Failed."""
        if not prepared.tokens:
            problem = Problem(400, "invalid_value", "The prompt is empty.", "prompt")
            self._events.append((request.id, Failed(problem)))
            return
        voice = self._voice
        raw = isinstance(request.input, RawInput)
        row = Row(
            request_id=request.id,
            prompt=prepared.tokens,
            max_tokens=prepared.max_tokens,
            stop_token_ids=prepared.stop_token_ids | frozenset(parameters.stop_token_ids),
            sampling=RowSampling.of(parameters),
            detokenizer=voice.new_detokenizer(prepared.tokens if raw else ()),
            processor=voice.new_processor(prepared, _new_call_id),
        )
        self._rows[request.id] = row
        self._prefill.add(row)

    def cancel(self, request_id: str) -> None:
        """Stop generating for a request; its last event is a Finished that says so."""
        row = self._rows.pop(request_id, None)
        if row is None:
            return
        self._prefill.cancel(row)
        for group in self._groups:
            group.leave(row)
        self._hand_over(row, row.end("cancelled"))

    def step(self) -> Events:
        """One decode step for all rows, one bounded slice of prefill; returns what happened.

        Raises:
            Exception: Whatever the model raises; nothing of this engine can be used after that.
        """
        self._admit(self._prefill.take_ready())
        for group in self._groups:
            group.tidy()
            group.launch()
        for group in self._groups:
            for row, token in group.read():
                self._take(group, row, token)
        for group in self._groups:
            group.sample()
        self._groups = [group for group in self._groups if not group.done]
        for row, progress in self._prefill.advance(decoding=bool(self._groups)):
            self._hand_over(row, [progress])
        self._steps += 1
        if self._steps % _CLEAR_STEPS == 0:
            mx.clear_cache()
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Free the model and everything that belongs to its requests."""
        self._groups.clear()
        self._rows.clear()
        self._prefill = PrefillQueue(None)
        self._model = None
        mx.synchronize()
        mx.clear_cache()

    def _admit(self, ready: Iterable[Joining]) -> None:
        """Put rows whose prompts are done into the groups where they fit, one join per group."""
        groups = [group for group in self._groups if group.live and group.batchable]
        arrivals: list[list[Joining]] = [[] for _ in groups]
        for joining in ready:
            length = max(row.length for row in joining.rows)
            index = self._grouping.place([group.length for group in groups], length)
            if index is not None and joining.batchable:
                arrivals[index].append(joining)
                continue
            group = BatchGroup(self._model, joining)
            self._groups.append(group)
            if group.batchable:
                groups.append(group)
                arrivals.append([])
        for group, joinings in zip(groups, arrivals, strict=True):
            if joinings:
                group.join(joinings)

    def _take(self, group: BatchGroup, row: Row, token: int) -> None:
        """Handle one token; what a parser or a template does wrong costs its own request only."""
        try:
            events = row.take(token)
        except Exception:
            log.exception("request failed", request_id=row.request_id)
            row.ended = True
            events = [Failed(_broken())]
        self._hand_over(row, events)
        if row.ended:
            group.leave(row)
            self._rows.pop(row.request_id, None)

    def _hand_over(self, row: Row, events: Iterable[GenerationEvent]) -> None:
        self._events += [(row.request_id, event) for event in events]


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _broken() -> Problem:
    return Problem(500, "internal_error", "The answer could not be processed; see the server's log.")
