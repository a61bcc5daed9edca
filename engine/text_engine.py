"""A loaded text model and the requests it generates for. Everything here runs on the model's one thread."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import structlog

from greenroom.engine.batch.conversation import conversation_of
from greenroom.engine.batch.cost_model import StepCosts
from greenroom.engine.batch.group import BatchGroup
from greenroom.engine.batch.grouping import GroupingPolicy
from greenroom.engine.batch.row import Row, Voice
from greenroom.engine.batch.running_groups import RunningGroups
from greenroom.engine.batch.scores import AnswerScores
from greenroom.engine.loader import load_model
from greenroom.engine.memory.account import MemoryAccount, Share
from greenroom.engine.memory.admission import Admission
from greenroom.engine.memory.device_memory import default_memory
from greenroom.engine.memory.footprint import Footprint
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.prefill.policy import PrefillPolicy
from greenroom.engine.prefill.queue import PrefillQueue
from greenroom.engine.prefix_cache.disk_tier import open_disk_tier
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.row_sampling import RowSampling
from greenroom.engine.speculation.speculation import Speculation
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.events import Failed, GenerationEvent
from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.problems import Problem, ProblemError, insufficient_memory
from greenroom.schemas.requests import GenerationRequest, PreparedInput
from greenroom.schemas.settings import Settings

Events = list[tuple[str, GenerationEvent]]
"""Events with the ids of the requests they belong to, in order."""

_CLEAR_STEPS = 512
"""Steps after which MLX gives buffers back that it keeps for reuse, as mlx-lm does."""

log = structlog.get_logger(__name__)


class TextEngine:
    """Continuous batching: `step` decodes one token for every running row and a slice of the waiting prompts.

    Args:
        model: One of mlx-lm's models, evaluated on this thread.
        voice: The model's adapter, made on this thread.
        prefixes: What is remembered of prompts; None remembers nothing.
        close_seconds: That `close` may take to write down what is remembered.
        speculation: Drafts tokens for a request that is alone; None drafts none.
        share: Of the memory account; None is unlimited.

    Attributes:
        admission: Who computes and who waits.
    """

    def __init__(
        self,
        model: Any,
        voice: Voice,
        prefill: PrefillPolicy | None = None,
        grouping: GroupingPolicy | None = None,
        prefixes: PrefixCache | None = None,
        close_seconds: float = 10.0,
        speculation: Speculation | None = None,
        share: Share | None = None,
    ) -> None:
        self._model = model
        self._close_seconds = close_seconds
        self._voice = voice
        costs = StepCosts()
        self.prefixes = prefixes
        self._memory = KvMemory(share, Footprint.of(model), prefixes)
        self._prefill = PrefillQueue(model, prefill, costs, prefixes, self._memory)
        self._groups = RunningGroups(model, costs, grouping, self._memory, speculation)
        self.admission = Admission(self._memory, self._prefill, self._groups)
        self._rows: dict[str, Row] = {}
        self._events: Events = []
        self._steps = 0

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        disk = self.prefixes.disk if self.prefixes is not None else None
        writing = disk is not None and disk.pending
        return bool(self._events or len(self._groups) or len(self._prefill) or len(self.admission) or writing)

    @property
    def running(self) -> int:
        """Requests that are not finished."""
        return len(self._rows)

    def submit(
        self,
        request: GenerationRequest,
        prepared: PreparedInput,
        parameters: GenerationParameters,
        embeddings: mx.array | None = None,
    ) -> None:
        """Take on a request; its events come from `step`, up to one Finished or Failed.

        Args:
            embeddings: Input embeddings `[prompt, hidden]` in place of those of the tokens, but for the last
                one: that is always a token of the template.
        """
        if not prepared.tokens:
            problem = Problem(400, "invalid_value", "The prompt is empty.", "prompt")
            self._events.append((request.id, Failed(problem)))
            return
        row, *twins = (self._row(request, prepared, parameters, i) for i in range(parameters.n))
        if embeddings is not None:  # equal tokens may stand for different images
            for choice in (row, *twins):
                choice.key = None
        row.twins = tuple(twins)
        try:
            self.admission.add(row, embeddings, request.client, conversation_of(request))
        except ProblemError as error:
            self._events.append((request.id, Failed(error.problem)))
            return
        self._rows[request.id] = row

    def cancel(self, request_id: str) -> None:
        """Stop generating for a request; its last event is a Finished that says so."""
        first = self._rows.pop(request_id, None)
        if first is None:
            return
        for row in self._leave(first):
            self._hand_over(row, row.end("cancelled"))

    def when_asked(self, call: Callable[[], None]) -> None:
        """Have `call` called, on any thread, when another model wants memory of the prefix cache."""
        self._memory.share.on_asked = call

    def give_way(self) -> None:
        """Forget prefixes for the sake of another model that has asked for memory."""
        self._memory.give_way()

    def step(self) -> Events:
        """One decode step for all rows, one bounded slice of prefill; returns what happened.

        Raises:
            Exception: Whatever the model raises; nothing of this engine can be used after that.
        """
        self._memory.give_way()
        if not len(self._groups):
            self._begin()  # those who are ready may wait for those who came with them
        self.admission.join()
        self._groups.rearrange()
        for row in self.admission.make_room():
            self._cut(row)
        self._groups.launch(alone=not len(self._prefill))
        self._groups.settle()
        for group in self._groups:
            for row, token in group.read():
                self._take(group, row, token)
        self._groups.has_read()
        if self.prefixes is not None and self.prefixes.disk is not None:
            self.prefixes.disk.advance(idle=not len(self._groups) and not len(self._prefill))
        for group in self._groups:
            for row, problem in group.sample():
                self._fail(row, problem)
        self._groups.drop_done()
        self._groups.settle()
        self._begin()
        progress, pieces = self._prefill.advance(self._groups.step_ms, self._groups.copied_ms)
        self._groups.sliced(pieces)
        for row, event in progress:
            if not row.resumes:
                self._hand_over(row, [event])
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
        self.admission = Admission(self._memory, self._prefill, self._groups)
        if self.prefixes is not None:
            self.prefixes.close(self._close_seconds)
        self._model = None
        self._memory.clear()
        mx.synchronize()
        mx.clear_cache()

    def _begin(self) -> None:
        """Let those who wait into prefill, as far as there is memory."""
        for row in self.admission.begin():
            if row.resumes:
                self._cut(row)
            else:
                self._fail(row, self.admission.too_long(row))

    def _take(self, group: BatchGroup, row: Row, token: int) -> None:
        """Handle one token; what a parser or a template does wrong costs its own request only."""
        try:
            events = row.take(token)
        except ProblemError as error:
            self._fail(row, error.problem)
            return
        except Exception:
            log.exception("request failed", request_id=row.request_id)
            self._fail(row, _broken())
            return
        self._hand_over(row, events)
        if row.ended:
            group.leave(row)
            self._ended(row)

    def _cut(self, row: Row) -> None:
        """There is no memory for the rest of an answer, and there never will be."""
        self._hand_over(row, row.end("length"))
        self._ended(row)

    def _ended(self, row: Row) -> None:
        """A choice has handed over its last event."""
        self.admission.leave(row)
        first = self._rows.get(row.request_id)
        if first is not None and all(choice.ended for choice in (first, *first.twins)):
            del self._rows[row.request_id]
        if broken := row.processor.broken_calls:
            log.warning("broken tool calls", request_id=row.request_id, calls=broken)

    def _fail(self, row: Row, problem: Problem) -> None:
        """End a request of which a row cannot go on; no other notices."""
        first = self._rows.pop(row.request_id, None)
        if first is not None:
            for choice in self._leave(first):
                choice.ended = True
            self._hand_over(row, [Failed(problem)])

    def _leave(self, first: Row) -> list[Row]:
        """Stop computing for a request; returns its choices that have not ended."""
        under_way = [choice for choice in (first, *first.twins) if not choice.ended]
        for choice in under_way:
            self._prefill.cancel(choice)
            self.admission.leave(choice)
            for group in self._groups:
                group.leave(choice)
        return under_way

    def _row(
        self,
        request: GenerationRequest,
        prepared: PreparedInput,
        parameters: GenerationParameters,
        index: int,
    ) -> Row:
        """One choice of a request, before its first token."""
        end_tokens = prepared.stop_token_ids | frozenset(parameters.stop_token_ids)
        matcher = prepared.matcher
        held_back = end_tokens if matcher is None else matcher.may_be_held_back(end_tokens)
        return Row(
            request_id=request.id,
            prompt=prepared.tokens,
            max_tokens=prepared.max_tokens,
            stop_token_ids=end_tokens,
            sampling=RowSampling.of(parameters, held_back, index),
            detokenizer=self._voice.new_detokenizer(prepared),
            processor=self._voice.new_stream_processor(prepared, _new_call_id, index),
            key=request.key,
            borders=prepared.borders,
            on_leave=self._prefill.recall.keep_answer,
            matcher=matcher if matcher is None or index == 0 else matcher.clone(),
            index=index,
            scores=AnswerScores(self._voice.token, parameters.top_logprobs) if parameters.logprobs else None,
        )

    def _hand_over(self, row: Row, events: Iterable[GenerationEvent]) -> None:
        self._events += [(row.request_id, event) for event in events]


def load_text_engine(
    folder: Path,
    record: CapabilityRecord,
    settings: Settings,
    progress: Callable[[float], None],
    abandoned: Callable[[], bool],
    account: MemoryAccount | None = None,
) -> TextEngine:
    """Load a model's weights and everything that generates with them, all confined to this thread.

    Args:
        progress: Told the fraction of the weights that are in memory, 0 to 1.
        abandoned: Asked between layers.
        account: Of memory, shared by all models of the process; None is one of its own.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: `abandoned` said so.
    """
    from greenroom.engine.adapters.registry import make_adapter
    from greenroom.engine.speculation.loading import load_speculation
    from greenroom.engine.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder, settings.trust_remote_code)
    adapter = make_adapter(record, tokenizer, settings)
    prefill = PrefillPolicy(max_stall=settings.max_stall, least_tokens=settings.min_slice)
    account = account or MemoryAccount(settings.memory_bytes, settings.kv_bytes)
    share = account.open()
    charge = partial(_charge, account, share, folder.name)
    try:
        model = load_model(folder, settings, progress, abandoned, charge)
        prefixes = None
        if settings.prefix_cache_bytes:
            prefixes = PrefixCache(settings.prefix_cache_bytes, open_disk_tier(folder, settings, model))
        speculation = load_speculation(model, tokenizer, settings, abandoned, charge)
        return TextEngine(
            model,
            adapter,
            prefill,
            prefixes=prefixes,
            close_seconds=settings.grace / 4,
            speculation=speculation,
            share=share,
        )
    except BaseException:
        share.close()
        raise


def _charge(account: MemoryAccount, share: Share, model: str, nbytes: int) -> None:
    """Charge the weights of a model, and of one that drafts for it, before they are read.

    Raises:
        ProblemError: 507.
    """
    account.limit_to(default_memory())
    before = share.weights
    room = share.take_weights(before + nbytes)
    if room is not None:
        raise ProblemError(insufficient_memory(model, nbytes, room - before))


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _broken() -> Problem:
    return Problem(500, "internal_error", "The answer could not be processed; see the server's log.")
