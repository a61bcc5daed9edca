"""Speculative decoding for a lone sequence: decides when to draft and measures the benefit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from pathlib import Path
from typing import Any, Literal, Protocol

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.text.drafters import MAX_DRAFT, DraftModel, PromptLookup, SpeculationPolicy, can_verify
from greenroom.engine.text.sequence import Sequence
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, load_tokenizer
from greenroom.schemas.events.statistics import SpeculationStatistics
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings.settings import Settings


class Drafter(Protocol):
    @property
    def nbytes(self) -> int:
        """Bytes of its caches."""

    def has_memory(self, reserve: Callable[[int], bool]) -> bool:
        """Reserve missing memory for drafting; return whether there is enough."""

    def begin(self, sequence: Sequence) -> None:
        """Start drafting for a sequence; its prompt is known, its answer is added later."""

    def add(self, tokens: GenericSequence[int]) -> None:
        """Add tokens of the answer, drafted or not, with a bounded amount of work."""

    def can_draft(self) -> bool:
        """Return whether a draft is possible now."""

    def draft(self, count: int) -> mx.array:
        """Return `count` draft tokens, `[count]` (uint32), possibly in flight."""

    def prefill(self) -> bool:
        """Prefill a bounded chunk of the prompt if that is worth it; return whether it did."""

    def reset(self) -> None:
        """Release the sequence's state."""


_Step = Literal["plain", "unpipelined", "verifying", "other"]


class Speculation:
    """Decides at every step of a lone sequence whether to draft, and records the results.

    A plain step is launched while the previous token is in flight. A draft needs that token, so the engine
    waits for it only if a draft is likely.

    The scheduler owns it, and passes it to the step of a lone sequence (`for_step`).

    Args:
        drafter: Source of draft tokens; None turns speculative decoding off.
        clock: Clock in seconds.

    Attributes:
        reserve: Reserves bytes of memory; returns whether they fit.
    """

    def __init__(
        self,
        drafter: Drafter | None = None,
        policy: SpeculationPolicy | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.reserve: Callable[[int], bool] = lambda nbytes: True
        self._drafter = drafter
        self._policy = policy or SpeculationPolicy()
        self._clock = clock
        self._sequence: Sequence | None = None
        self._added = 0
        self._launched: deque[_Step] = deque()
        self._last_arrival: float | None = None
        self._drafted = self._accepted = 0

    @property
    def nbytes(self) -> int:
        return self._drafter.nbytes if self._drafter is not None else 0

    @property
    def lookahead(self) -> int:
        """Draft tokens that a step of a lone sequence may add."""
        return MAX_DRAFT if self._drafter is not None else 0

    def statistics(self) -> SpeculationStatistics | None:
        """Return the number of drafted and accepted tokens so far; None if it is off."""
        return SpeculationStatistics(self._drafted, self._accepted) if self._drafter is not None else None

    def for_step(self, alone: bool) -> Speculation | None:
        """Return the object that proposes and measures the next step's drafts; None for no drafts."""
        if alone and self._drafter is not None:
            return self
        self._pause()
        return None

    def propose(self, sequence: Sequence, read: Callable[[], list[int]], in_flight: bool) -> mx.array | None:
        """Return draft tokens to verify in the next step; None for a plain step.

        Args:
            read: Waits for and returns the tokens that the sequence has sampled but not appended to its
                answer.
            in_flight: Whether those tokens are still in flight.
        """
        if in_flight and not self._launched:  # launched while others ran too
            self._launched.append("other")
        drafts, step = self._propose(sequence, read, in_flight)
        self._launched.append(step)
        return drafts

    def record_step(self) -> None:
        """Record that the token of a step without drafts has arrived."""
        milliseconds, step = self._interval()
        if milliseconds is None:
            return
        if step == "plain":
            self._policy.record_step(milliseconds)
        elif step == "unpipelined":
            self._policy.record_unpipelined(milliseconds)

    def record_verified(self, drafted: int, accepted: int) -> None:
        self._drafted += drafted
        self._accepted += accepted
        milliseconds, _ = self._interval()
        self._policy.record_draft(drafted, accepted, milliseconds)

    def reset(self) -> None:
        self._pause()
        self._sequence = None
        if self._drafter is not None:
            self._drafter.reset()

    def _pause(self) -> None:
        """Discard measurements in progress: the next steps are not those of a lone sequence."""
        self._launched.clear()
        self._last_arrival = None

    def _propose(
        self, sequence: Sequence, read: Callable[[], list[int]], in_flight: bool
    ) -> tuple[mx.array | None, _Step]:
        without: _Step = "plain" if in_flight else "unpipelined"
        drafter = self._drafter
        if drafter is None or not can_verify(sequence):
            return None, without
        self._update(drafter, sequence, [])
        if not drafter.has_memory(self.reserve):
            return None, without
        # The token in flight is not known yet; whether a draft is possible without it is a good predictor.
        count = self._policy.draft_length(sequence.max_tokens - sequence.sampled - 1)
        if in_flight and not (count and drafter.can_draft()):
            return None, "other" if count and drafter.prefill() else "plain"
        new_tokens = read()
        if new_tokens and new_tokens[-1] in sequence.stop_token_ids:
            return None, "unpipelined"
        self._update(drafter, sequence, new_tokens)
        if not count or not drafter.can_draft():
            return None, "unpipelined"
        return drafter.draft(count), "verifying"

    def _update(self, drafter: Drafter, sequence: Sequence, new_tokens: list[int]) -> None:
        if self._sequence is not sequence:
            self._sequence, self._added = sequence, 0
            drafter.begin(sequence)
        new = (sequence.answer[self._added :] + new_tokens)[max(0, self._added - len(sequence.answer)) :]
        self._added += len(new)
        drafter.add(new)

    def _interval(self) -> tuple[float | None, _Step]:
        """Return the milliseconds since the last token arrival, and the kind of the step that ended."""
        step: _Step = self._launched.popleft() if self._launched else "other"
        now = self._clock()
        before, self._last_arrival = self._last_arrival, now
        return (None if before is None else (now - before) * 1e3), step


log = get_logger(__name__)


def load_speculation(
    model: Any,
    tokenizer: ChatTokenizer,
    settings: Settings,
    is_abandoned: Callable[[], bool] = lambda: False,
    reserve_memory: Callable[[int], None] = lambda nbytes: None,
) -> Speculation | None:
    """Return the speculative decoding for this model; None if it is off or not possible.

    Args:
        tokenizer: Tokenizer of the target model.
        is_abandoned: Predicate, called between chunks of a draft model's weights.
        reserve_memory: Function called with the bytes of the draft model's weights before they are read; may
            raise ProblemError.

    Raises:
        ProblemError: 503 `load_failed` if the draft model cannot be loaded or does not fit this model; or the
            error of `reserve_memory`.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    draft_model = settings.draft_model
    mode = settings.speculation or ("draft" if draft_model is not None else "off")
    if mode == "off":
        return None
    if not caches.can_trim(caches.new_cache(model)):
        log.info("no speculation", reason="its cache cannot be trimmed")
        return None
    if mode == "lookup" or draft_model is None:
        return Speculation(PromptLookup())
    draft = _load_draft(tokenizer, draft_model, settings, is_abandoned, reserve_memory)
    width = model(mx.array([[0]])).shape[-1]
    share = max(_bytes(draft) / _bytes(model), 1e-3)
    return Speculation(DraftModel(draft, width, share))


def _load_draft(
    tokenizer: ChatTokenizer,
    name: str,
    settings: Settings,
    is_abandoned: Callable[[], bool],
    reserve_memory: Callable[[int], None],
) -> Any:
    folder = _folder(name)
    draft_tokenizer = load_tokenizer(folder, settings.trust_remote_code, name)
    if draft_tokenizer.vocab != tokenizer.vocab:
        reason = f"the draft model '{name}' has another vocabulary; use one of the same family"
        raise ProblemError(load_failed(tokenizer.folder.name, reason))
    draft = load_model(folder, settings, is_abandoned=is_abandoned, reserve_memory=reserve_memory)
    if not caches.can_trim(caches.new_cache(draft)):
        reason = f"the draft model '{name}' has a cache that cannot be trimmed (a sliding window or a state)"
        raise ProblemError(load_failed(tokenizer.folder.name, reason))
    return draft


def _folder(name: str) -> Path:
    """Return the draft model's folder, which was fetched before the load. Raises ProblemError: 503
    `load_failed`: it is not on this machine.
    """
    from greenroom.engine.catalog.folders import local_folder

    if (folder := local_folder(name)) is None:
        raise ProblemError(load_failed(name, f"it is not on this machine; run `greenroom pull {name}`."))
    return folder


def _bytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    return sum(value.nbytes for _, value in tree_flatten(model.parameters()))
