"""Prompts on their way into the batch: computed in bounded slices between decode steps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.batch import caches
from greenroom.engine.batch.caches import Cache
from greenroom.engine.batch.cost_model import Slice, StepCosts
from greenroom.engine.batch.fair_queue import FairQueue, Waiting
from greenroom.engine.batch.joining import Joining
from greenroom.engine.batch.leading import Leading
from greenroom.engine.batch.prefill_policy import PrefillPolicy
from greenroom.engine.batch.row import Row
from greenroom.engine.memory.footprint import STEP
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.prefix_cache.recall import Recall
from greenroom.schemas.events import PromptProgress


@attrs.define(eq=False)
class _Prompt:
    """A prompt that is not wholly computed.

    Args:
        embeddings: Input embeddings `[prompt, hidden]` instead of those of the token ids. The last position
            is decoded from its token id.
        cache: Plain; made when the prompt's turn comes.
        done: Tokens that the cache holds, or will once the slice under way is evaluated.
        client: Who asks.
        conversation: Which of the client's conversations it belongs to.
        stops: Where slices have to end.
        version: What was known of prefixes when `done` was found, before the prompt's turn came.
    """

    row: Row
    embeddings: mx.array | None = None
    cache: Cache | None = None
    done: int = 0
    client: str = ""
    conversation: str = ""
    stops: tuple[int, ...] = ()
    version: int = -1

    @property
    def until_stop(self) -> int:
        """Tokens of the longest slice."""
        return next((stop - self.done for stop in self.stops if stop > self.done), self.remaining)

    @property
    def remaining(self) -> int:
        """Tokens still to compute; the last one of the prompt is the row's first decode step."""
        return len(self.row.inputs) - 1 - self.done


class PrefillQueue:
    """Prompts in order of arrival, one slice of work at a time.

    The last token of a prompt is never computed here: it is the first input of the row's decoding, so it
    shares the next step of the rows that are running already.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, slice]`.
        memory: What the caches may take.
    """

    def __init__(
        self,
        model: Any,
        policy: PrefillPolicy | None = None,
        costs: StepCosts | None = None,
        prefixes: PrefixCache | None = None,
        memory: KvMemory | None = None,
    ) -> None:
        self._model = model
        self._memory = memory
        self.recall = Recall(model, prefixes)
        self._policy = policy or PrefillPolicy()
        self._costs = costs or StepCosts()
        self._fair = FairQueue()
        self._leading = Leading(self.recall.remembers)
        self._prompts: list[_Prompt] = []
        self._ready: list[Joining] = []
        self._ready_since = 0.0
        self._under_way: list[Cache] = []
        self._launched: tuple[float, list[Slice]] | None = None
        self._beside = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._prompts) + len(self._ready)

    def add(
        self, row: Row, embeddings: mx.array | None = None, client: str = "", conversation: str = ""
    ) -> None:
        """Queue a row's prompt."""
        self._prompts.append(
            _Prompt(row, embeddings, client=client, conversation=conversation or row.request_id)
        )
        shared = self._leading.arrives(row) if embeddings is None else {}
        for prompt in self._prompts:
            if prompt.row in shared:
                self._pause_at(prompt, [shared[prompt.row]])

    def cancel(self, row: Row) -> None:
        """Forget a prompt; a slice of it that is under way is wasted."""
        self._prompts = [prompt for prompt in self._prompts if prompt.row is not row]
        left = [joining.without(row) for joining in self._ready]
        self._ready = [joining for joining in left if joining is not None]
        self._leading.ends(row)

    def withdraw(self, row: Row) -> bool:
        """Forget a prompt that will begin anew, and have its memory back; whether it was here."""
        found = any(prompt.row is row for prompt in self._prompts)
        if found:
            for cache in self._under_way:
                mx.eval(caches.arrays_of(cache))
            self._under_way = []
            self.cancel(row)
        return found

    def take_ready(self) -> list[Joining]:
        """Rows that can decode; their caches may still be under way, which no caller needs to wait for."""
        if self._holds():
            return []
        ready, self._ready = self._ready, []
        return ready

    def advance(
        self, decode_ms: float, copied_ms: float = 0.0
    ) -> tuple[list[tuple[Row, PromptProgress]], list[Slice]]:
        """Start the next slice, once the one before it is done.

        Args:
            decode_ms: What a decode step takes, which the slice delays; 0 if nothing is decoding.
            copied_ms: What copies delayed the last one by, which is taken from the slice.

        Returns:
            How far prompts have come, and what was launched.
        """
        idle = decode_ms == 0
        self._finish_slice(idle)
        if not self._prompts:
            self._beside = 0
            return [], []
        beside = 0 if idle else self._beside + 1
        if (beside == 0) != (self._beside == 0):
            self._last = 0
        self._beside = beside
        if self._policy.pauses(self._beside):
            return [], []
        budget = max(self._policy.budget(decode_ms, len(self._prompts)) - copied_ms, 0.0)
        began = time.perf_counter()  # launching can block, and then it is what takes the time
        reached, pieces = self._fill(budget, idle)
        if pieces:
            self._last = sum(rows * tokens for rows, tokens, _ in pieces)
            self._launched = (began, pieces) if idle else None
        return [(prompt.row, _progress(prompt)) for prompt in reached], pieces

    def _fill(self, left: float, idle: bool) -> tuple[list[_Prompt], list[Slice]]:
        """Compute prompts for so many milliseconds: the next one as soon as one is done."""
        reached: list[_Prompt] = []
        pieces: list[Slice] = []
        while self._prompts:
            self._look_up()
            first = self._next()
            tokens = self._policy.tokens(self._costs, left, first.done, self._last, idle=idle)
            if pieces and (left <= 0 or tokens <= self._policy.least_tokens):
                break
            chosen = self._together(first, tokens)
            made = self._compute(chosen, tokens)
            pieces += made
            reached += chosen
            cost = self._costs.slices_ms(made)
            self._fair.charge([prompt.client for prompt in chosen], cost)
            left -= cost
            if first.remaining:
                break
        return reached, pieces

    def _finish_slice(self, idle: bool) -> None:
        """Wait for the slice under way; nobody else times it when nothing is decoding."""
        for cache in self._under_way:
            mx.eval(caches.arrays_of(cache))
        self._under_way = []
        if self._launched is not None and idle:
            began, pieces = self._launched
            self._costs.observe([], pieces, (time.perf_counter() - began) * 1e3)
        self._launched = None

    def _holds(self) -> bool:
        """Whether those who are ready wait for the rest of their burst."""
        if self._beside or not (self._ready and self._prompts):
            return False
        longest = max(len(row.inputs) for joining in self._ready for row in joining.rows)
        if not self._policy.alike(self._next().remaining, longest):
            return False
        waited = (time.perf_counter() - self._ready_since) * 1e3
        rest = [(1, prompt.remaining, prompt.done) for prompt in self._prompts]
        alike = [piece for piece in rest if self._policy.alike(piece[1], longest)]
        return self._policy.holds(waited, self._costs.slices_ms(alike))

    def _next(self) -> _Prompt:
        able = [prompt for prompt in self._prompts if not self._waits(prompt)]
        waiting = [Waiting(prompt.client, prompt.conversation, prompt.remaining) for prompt in able]
        return able[self._fair.choose(waiting)]

    def _waits(self, prompt: _Prompt) -> bool:
        """Whether a prompt that has not begun had better continue from one that is under way."""
        return prompt.cache is None and self._leading.should_wait(prompt.row, prompt.done)

    def _pause_at(self, prompt: _Prompt, shared: Iterable[int]) -> None:
        """Keep what a prompt under way has in common with others, if its cache cannot be cut later."""
        more = self.recall.stops(prompt.row, prompt.done, shared)
        prompt.stops = tuple(sorted({*prompt.stops, *more}))

    def _compute(self, chosen: list[_Prompt], tokens: int) -> list[Slice]:
        now = time.perf_counter()
        for prompt in chosen:
            prompt.row.started = prompt.row.started or now
            self._begin(prompt)
        if len(chosen) > 1:
            shape = (len(chosen), max(prompt.remaining for prompt in chosen), chosen[0].done)
            self._compute_together(chosen)
        else:
            shape = (1, min(chosen[0].until_stop, tokens), chosen[0].done)
            self._compute_slice(chosen[0], tokens)
        return [shape] if shape[1] else []

    def _together(self, first: _Prompt, tokens: int) -> list[_Prompt]:
        """The prompts of the next slice: several only if all are whole and their caches can share a batch."""
        whole = [prompt for prompt in self._prompts if prompt.embeddings is None and prompt.remaining]
        if first not in whole or len(whole) == 1 or first.remaining > tokens // 2:
            return [first]
        self._begin(first)
        if first.cache is None or not caches.can_batch(first.cache) or first.until_stop < first.remaining:
            return [first]
        whole = [prompt for prompt in whole if not self._waits(prompt)]
        remaining = [prompt.remaining for prompt in whole]
        chosen = [whole[index] for index in self._policy.companions(remaining, whole.index(first), tokens)]
        longest = 2 * len(first.row.inputs)
        chosen = [prompt for prompt in chosen if prompt is first or self._fits(prompt, longest)]
        return chosen if self._may_share(chosen) else [first]

    def _may_share(self, prompts: list[_Prompt]) -> bool:
        """Whether there is memory for a batched cache of these prompts and what was known of them."""
        if self._memory is None:
            return True
        footprint = self._memory.footprint
        longest = max(len(prompt.row.inputs) for prompt in prompts)
        known = sum(footprint.nbytes(1, prompt.done) for prompt in prompts if prompt.done)
        joined = footprint.nbytes(len(prompts), longest + STEP, longest)
        return self._memory.widen([prompt.row for prompt in prompts], joined + known)

    def _fits(self, prompt: _Prompt, longest: int) -> bool:
        """Whether a prompt can be computed whole beside others; what is known of it pads them."""
        self._begin(prompt)
        return prompt.until_stop == prompt.remaining and (
            not prompt.done or len(prompt.row.inputs) <= longest
        )

    def _look_up(self) -> None:
        """See what need not be computed of prompts whose turn has not come."""
        version = self.recall.version
        for prompt in self._prompts:
            if prompt.cache is None and prompt.version != version and prompt.embeddings is None:
                prompt.done, prompt.version = self.recall.known(prompt.row).usable, version

    def _begin(self, prompt: _Prompt) -> None:
        if prompt.cache is not None:
            return
        if prompt.embeddings is not None:
            prompt.cache = caches.new_cache(self._model)
            prompt.stops = (len(prompt.embeddings) - 1,)  # what a resumed row has said is tokens again
            return
        row = prompt.row
        shared = self.recall.known(row).shared
        prompt.cache, prompt.done = self.recall.begin(row)
        waiting = (other.row for other in self._prompts if other.cache is None and other.embeddings is None)
        self._pause_at(prompt, {shared, *self._leading.begins(row, waiting)})
        if not row.resumes:
            row.cached = prompt.done

    def _compute_slice(self, prompt: _Prompt, budget: int) -> None:
        """Advance one prompt by at most `budget` tokens."""
        cache = prompt.cache
        assert cache is not None
        count = min(prompt.until_stop, budget)
        if count:
            if self._memory is not None:
                self._memory.arrange(cache, len(prompt.row.inputs))
            span = slice(prompt.done, prompt.done + count)
            tokens = mx.array(list(prompt.row.inputs[span]))[None]
            if prompt.embeddings is None or prompt.done >= len(prompt.embeddings) - 1:
                self._model(tokens, cache=cache)
            else:
                self._model(tokens, cache=cache, input_embeddings=prompt.embeddings[span][None])
            mx.async_eval(caches.arrays_of(cache))
            self._under_way.append(cache)
        prompt.done += count
        if prompt.remaining == 0 or prompt.done in prompt.stops:
            self.recall.keep_prompt(prompt.row, cache, None, prompt.done)
        if prompt.remaining == 0:
            self._remove(prompt)
            self._finish(Joining((prompt.row,), cache))

    def _finish(self, joining: Joining) -> None:
        if not self._ready:
            self._ready_since = time.perf_counter()
        self._ready.append(joining)

    def _remove(self, prompt: _Prompt) -> None:
        self._prompts.remove(prompt)
        self._leading.ends(prompt.row)

    def _compute_together(self, prompts: list[_Prompt]) -> None:
        """Compute all that remains of several prompts in one pass."""
        cache = caches.merge([prompt.cache for prompt in prompts if prompt.cache is not None])
        lengths = [prompt.remaining for prompt in prompts]
        width = max(lengths)
        padding = [width - length for length in lengths]
        rows = [
            [*prompt.row.inputs[prompt.done : -1], *[0] * pad]
            for prompt, pad in zip(prompts, padding, strict=True)
        ]
        if any(padding):
            caches.begin_padded(cache, lengths, padding)
        self._model(mx.array(rows), cache=cache)
        if any(padding):
            caches.end_padded(cache)
        mx.async_eval(caches.arrays_of(cache))
        self._under_way.append(cache)
        for index, prompt in enumerate(prompts):
            prompt.done += prompt.remaining
            self._remove(prompt)
            self.recall.keep_prompt(prompt.row, cache, index, prompt.done)
        self._finish(Joining(tuple(prompt.row for prompt in prompts), cache))


def _progress(prompt: _Prompt) -> PromptProgress:
    row, total = prompt.row, len(prompt.row.inputs)
    processed = prompt.done if prompt.remaining else total
    assert row.started is not None
    return PromptProgress(processed, total, row.cached, time.perf_counter() - row.started)
