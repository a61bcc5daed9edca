"""Rows that decode together over one cache: our own step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.batch import caches
from greenroom.engine.batch.constrained import Refused, constrain
from greenroom.engine.batch.cost_model import Shape
from greenroom.engine.batch.grouping import CompactionPolicy
from greenroom.engine.batch.joining import Joining
from greenroom.engine.batch.row import Row
from greenroom.engine.logprobs import LogprobScorer, Scores
from greenroom.engine.memory.footprint import STEP, Extent, Footprint
from greenroom.engine.sampling import Sampler
from greenroom.engine.speculation.speculation import Speculation
from greenroom.engine.speculation.verification import Drafts, Verification

_SETTLE_STEPS = 64
"""Steps after which counters that no layer reads are evaluated, so that they do not pile up as a graph."""


_Drawn = tuple[mx.array, tuple[LogprobScorer, mx.array] | None]
"""Tokens that are being drawn, by row, and the scores of the rows that asked for them."""


class BatchGroup:
    """One cache and the rows in it; a row that has left stays as None until the group is compacted.

    A step of the engine is `tidy`, `launch`, `read`, `sample`: the forward pass of the next token is under
    way while the host reads and handles the token before it, and so is drawing it where that needs no host.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, 1]`; returns logits `[rows, 1, vocabulary]`.
    """

    def __init__(self, model: Any, joining: Joining, compaction: CompactionPolicy | None = None) -> None:
        self.rows: list[Row | None] = list(joining.rows)
        self.batchable = joining.batchable
        self._model = model
        self._cache = joining.cache
        self._inputs = _first_inputs(joining.rows)
        self._compaction = compaction or CompactionPolicy()
        self._sampler: Sampler | None = None
        self._logits: mx.array | None = None
        self._scorer: LogprobScorer | None = None
        self._unread: tuple[Any, tuple[Row | None, ...]] | None = None
        self._unread_scores: tuple[LogprobScorer, mx.array] | None = None
        self._drawn: _Drawn | None = None
        self._steps = 0
        self._copied = 0
        self._heirs: list[BatchGroup] = []
        self._speculation: Speculation | None = None
        self._drafts: Drafts | None = None
        self._verification: Verification | None = None
        self._accepted = 0
        self._extent: Extent | None = None
        self._since = 0

    @property
    def live(self) -> int:
        """Rows that go on."""
        return len(self.rows) - self.rows.count(None)

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max((row.length for row in self.rows if row is not None), default=0)

    @property
    def shape(self) -> Shape:
        """Rows that are computed, and the length of the longest."""
        return len(self.rows), self.length

    @property
    def size_in_bytes(self) -> int:
        """Bytes of its cache."""
        return caches.size_in_bytes(self._cache)

    def extent(self, footprint: Footprint) -> Extent:
        """What its cache takes; measured anew when something has changed it."""
        if self._extent is None:
            self._extent, self._since = Extent.of(self._cache, len(self.rows), footprint), 0
        return self._extent

    def grows(self, footprint: Footprint, ahead: int = 0) -> bool:
        """Whether the next step makes its cache larger, with so many drafted tokens."""
        return self.extent(footprint).room <= self._since + ahead and self.live > 0

    def grow(self, ahead: int = 0) -> None:
        """Make room for the next steps, layer by layer, which takes less memory meanwhile than a step."""
        caches.grow(self._cache, STEP, ahead)
        self._extent = None

    def take_copied(self) -> int:
        """Bytes of caches that were copied since the last call."""
        copied, self._copied = self._copied, 0
        return copied

    @property
    def done(self) -> bool:
        """Nothing is left to compute or to read."""
        return self._unread is None and self.live == 0

    @property
    def verifies(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._drafts is not None

    def join(self, arrivals: Sequence[Joining], *, thrifty: bool = False) -> None:
        """Take in new rows, all in one copy of the cache.

        Args:
            thrifty: Copy layer by layer, which takes longer and less memory.
        """
        self._settle()
        self.compact(thrifty=thrifty)
        plain = [arrival.cache for arrival in arrivals if len(arrival.rows) == 1]
        batched = [arrival for arrival in arrivals if len(arrival.rows) > 1]
        if len(self.rows) == 1:
            self._cache = caches.merge([self._cache, *plain], thrifty=thrifty)
        elif plain:
            caches.extend(self._cache, caches.merge(plain, thrifty=thrifty), thrifty=thrifty)
        for arrival in batched:
            caches.extend(self._cache, arrival.cache, thrifty=thrifty)
        rows = [arrival.rows[0] for arrival in arrivals if len(arrival.rows) == 1]
        rows += [row for arrival in batched for row in arrival.rows]
        self._inputs = mx.concatenate([self._inputs, _first_inputs(rows)])
        self.rows += rows
        self._sampler = self._extent = None
        self._copied += self.size_in_bytes

    def absorb(self, other: BatchGroup) -> None:
        """Take in all rows of another group, which is left with what it has yet to hand over."""
        other._settle()
        other.compact()
        inputs = other._inputs
        self.join([Joining(tuple(row for row in other.rows if row is not None), other._cache)])
        self._inputs = mx.concatenate([self._inputs[: -len(other.rows)], inputs])
        other.rows = [None] * len(other.rows)
        other._cache, other._extent = [], None
        other._heirs = [self]

    def split(self, longest: int) -> BatchGroup:
        """Move the rows up to that length, some but not all, to a group of their own."""
        self.compact()
        rows = tuple(row for row in self.rows if row is not None and row.length <= longest)
        moving = [index for index, row in enumerate(self.rows) if row in rows]
        plain = [caches.extract(self._cache, index) for index in moving]
        group = BatchGroup(self._model, Joining(rows, caches.merge(plain) if len(plain) > 1 else plain[0]))
        group._inputs = self._inputs[mx.array(moving)]
        for index in moving:
            self.rows[index] = None
        self.compact()
        self._copied += group.size_in_bytes
        self._heirs = [group]
        return group

    def leave(self, row: Row) -> None:
        """Stop computing for a row; a token of it that is under way is dropped."""
        self._settle()
        for index, member in enumerate(self.rows):
            if member is row:
                self._let_go(index, row)
        for heir in self._heirs:
            heir.leave(row)

    def drop(self, row: Row) -> bool:
        """Stop computing for a row that will begin anew, and forget the token of it that is under way."""
        self._settle()
        if row not in self.rows:
            return False
        self.rows[self.rows.index(row)] = None
        if self._unread is not None:
            tokens, rows = self._unread
            self._unread = tokens, tuple(None if member is row else member for member in rows)
        if self.live == 0:
            self._cache, self._extent = [], None
        return True

    def tidy(self, lend: Callable[[int], bool]) -> None:
        """Cut out rows that have left, once they cost more than a copy of the cache.

        Args:
            lend: Whether there are so many bytes for the copy.
        """
        live = self.live
        rows = len(self.rows)
        worth_it = 0 < live < rows and self._compaction.should_compact(rows, live)
        if worth_it and lend(self.size_in_bytes * live // rows):
            self.compact()

    def launch(self, speculation: Speculation | None = None) -> None:
        """Start the forward pass for all rows; its input may still be under way itself.

        Args:
            speculation: May add drafted tokens to the input of a row that is alone.
        """
        self._settle()
        if self.live == 0 or self._is_drawn():
            return
        self._speculation = speculation
        inputs = self._inputs[:, None]
        if speculation is not None and (drafts := self._draft(speculation)) is not None:
            self._drafts = drafts
            inputs = mx.concatenate([inputs, drafts.tokens[None]], axis=1)
            self._logits = self._model(inputs, cache=self._cache)[0]
            mx.async_eval(self._logits)
        else:
            self._logits = self._model(inputs, cache=self._cache)[:, -1, :]
            if self._draws_at_once:
                self._drawn, _ = self._draw(self._logits)
            else:
                mx.async_eval(self._logits)
        self._steps += 1
        self._since += inputs.shape[1]
        if self._extent is not None and self._since > self._extent.room:
            self._extent = None
        if self._steps % _SETTLE_STEPS == 0:
            mx.async_eval(caches.arrays_of(self._cache))

    def read(self) -> Iterator[tuple[Row, int]]:
        """Tokens that the last step drew, with their rows: the only wait of a step."""
        if self._unread is None:
            return
        tokens, rows = self._unread
        self._unread = None
        values: Any = tokens
        if isinstance(tokens, mx.array):
            values = tokens.tolist()
            if self._speculation is not None:
                self._speculation.arrived()
        accepted, self._accepted = self._accepted, 0
        scores: dict[int, Scores] = {}
        if self._unread_scores is not None:
            scorer, scored = self._unread_scores
            scores, self._unread_scores = scorer.by_row(scored), None
        for index, (row, token) in enumerate(zip(rows, values, strict=True)):
            if row is not None and not row.ended:
                if row.scores is not None and index in scores:
                    row.scores.read(scores[index])
                row.accepted += index < accepted
                if index and index == len(values) - 1 and row is self.rows[0] and self._is_drawn():
                    self._let_go(0, row)
                yield row, token

    def sample(self) -> Refused:
        """Have the next tokens drawn from the logits of `launch`; after its last one a row leaves.

        Returns:
            Rows that cannot go on; their tokens must not be read.
        """
        logits, self._logits = self._logits, None
        drawn, self._drawn = self._drawn, None
        self._heirs = []
        drafts, self._drafts = self._drafts, None
        if logits is None or self.live == 0:
            return []
        if drafts is not None:
            self._verify(drafts, logits)
            return []
        refused: Refused = []
        if drawn is None:
            drawn, refused = self._draw(logits)
        self._inputs, self._unread_scores = drawn
        self._unread = (self._inputs, tuple(self.rows))
        for index, row in enumerate(self.rows):
            if row is not None:
                row.sampled += 1
                if row.sampled >= row.max_tokens:
                    self._let_go(index, row)
        return refused

    @property
    def _draws_at_once(self) -> bool:
        """Whether the next tokens can be drawn before the host has read those before them.

        Then drawing is launched together with the forward pass, in one evaluation instead of two.
        """
        return not any(row and (row.matcher is not None or row.sampling.penalises) for row in self.rows)

    def _draw(self, logits: mx.array) -> tuple[_Drawn, Refused]:
        """Start drawing from logits `[rows, vocabulary]`; returns the rows that cannot go on, too."""
        if self._sampler is None or self._sampler.stale:
            self._make_sampler()
        assert self._sampler is not None
        scorer = self._scorer
        known = None if scorer is None else scorer.of(logits)
        logits, refused = constrain(logits, self.rows)
        tokens = self._sampler(logits)
        mx.async_eval(tokens)
        if scorer is None or known is None:
            return (tokens, None), refused
        scores = scorer.score(known, tokens)
        mx.async_eval(scores)
        return (tokens, (scorer, scores)), refused

    def _draft(self, speculation: Speculation) -> Drafts | None:
        """What may follow the only row."""
        (row,) = self.rows
        if row is None or not caches.can_trim(self._cache):
            return None
        waiting = self._unread is not None and isinstance(self._unread[0], mx.array)
        return speculation.drafts(row, self._read_ahead, waiting)

    def _read_ahead(self) -> list[int]:
        """The tokens that `read` will hand out. Waits."""
        if self._unread is None:
            return []
        tokens, rows = self._unread
        if isinstance(tokens, mx.array):
            tokens = tokens.tolist()
            self._unread = tokens, rows
            if self._speculation is not None:
                self._speculation.arrived()
        return list(tokens)

    def _verify(self, drafts: Drafts, logits: mx.array) -> None:
        """Start drawing at every place of a draft."""
        (row,) = self.rows
        assert row is not None
        self._verification = Verification(row, drafts, logits)

    def _settle(self) -> None:
        """Wait for tokens that are held against drafted ones, and forget what was wrong of those."""
        verification, self._verification = self._verification, None
        if verification is None:
            return
        row, drafts, tokens = verification.row, verification.drafts, verification.tokens()
        self._accepted = len(tokens) - 1
        if self._speculation is not None:
            self._speculation.verified(drafts, self._accepted)
        caches.trim(self._cache, drafts.count - self._accepted)
        self._extent = None
        row.drafted += drafts.count
        row.sampled += len(tokens)
        self._inputs = mx.array(tokens[-1:], dtype=mx.uint32)
        self._unread = tokens, (row,) * len(tokens)
        self._unread_scores = verification.scores
        self._sampler = None

    def _is_drawn(self) -> bool:
        """Whether the last token of the only row is known, but not handed out."""
        row = self.rows[0] if len(self.rows) == 1 else None
        return row is not None and row.sampled >= row.max_tokens

    def _make_sampler(self) -> None:
        self._sampler = Sampler(
            [row.sampling if row else Sampler.IDLE for row in self.rows],
            [row.sampled if row else 0 for row in self.rows],
            tuple(self.rows),
        )
        wanted = {i: row.scores.top for i, row in enumerate(self.rows) if row and row.scores is not None}
        self._scorer = LogprobScorer(wanted, len(self.rows)) if wanted else None

    def _let_go(self, index: int, row: Row) -> None:
        """A row leaves; the cache holds its prompt and what was read of its answer."""
        if row.on_leave is not None:
            row.on_leave(row, self._cache, None if len(self.rows) == 1 else index)
        self.rows[index] = None

    def compact(self, *, thrifty: bool = False) -> None:
        """Cut out rows that have left."""
        keep = [index for index, row in enumerate(self.rows) if row is not None]
        if len(keep) == len(self.rows) or not keep:
            return
        if len(keep) == 1:
            self._cache = caches.extract(self._cache, keep[0], thrifty=thrifty)
        else:
            caches.keep_rows(self._cache, keep, thrifty=thrifty)
        self._copied += self.size_in_bytes
        self._inputs = self._inputs[mx.array(keep)]
        self.rows = [self.rows[index] for index in keep]
        self._sampler = self._extent = None


def _first_inputs(rows: Sequence[Row]) -> mx.array:
    return mx.array([row.inputs[-1] for row in rows], dtype=mx.uint32)
