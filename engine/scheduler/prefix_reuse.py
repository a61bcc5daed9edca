"""What need not be computed of a prompt: its beginning, if it is known or another prompt's as well."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.prefix_cache.client import PrefixCacheClient
from greenroom.engine.scheduler.prefill_request import PrefillRequest
from greenroom.engine.scheduler.prefix_sharing import PrefixSharing
from greenroom.engine.sequences.sequence import Sequence


class PrefixReuse:
    """Gives prompts their caches, filled as far as somebody has computed them.

    Args:
        model: Whose caches they are.
        recall: What is known of prompts.
    """

    def __init__(self, model: Any, recall: PrefixCacheClient) -> None:
        self._model = model
        self._prefix_cache = recall
        self._sharing = PrefixSharing(recall.is_cacheable)

    def add(self, prompt: PrefillRequest, prompts: Iterable[PrefillRequest]) -> None:
        """A prompt waits for its turn; those under way pause where they part with it, if they have to."""
        shared = self._sharing.add(prompt.sequence) if prompt.embeddings is None else {}
        for other in prompts:
            if other.sequence in shared:
                self._add_checkpoints(other, [shared[other.sequence]])

    def match(self, prompts: Iterable[PrefillRequest]) -> None:
        """See what need not be computed of prompts whose turn has not come."""
        version = self._prefix_cache.version
        for prompt in prompts:
            if prompt.cache is None and prompt.cache_version != version and prompt.embeddings is None:
                prompt.computed, prompt.cache_version = (
                    self._prefix_cache.match(prompt.sequence).usable,
                    version,
                )

    def should_wait(self, prompt: PrefillRequest) -> bool:
        """Whether a prompt that has not begun had better continue from one that is under way."""
        return prompt.cache is None and self._sharing.should_wait(prompt.sequence, prompt.computed)

    def start(self, prompt: PrefillRequest, prompts: GenericSequence[PrefillRequest]) -> None:
        """A prompt's turn has come, if it had not before.

        Args:
            prompts: All that are not wholly computed.
        """
        if prompt.cache is not None:
            return
        if prompt.embeddings is not None:
            prompt.cache = caches.new_cache(self._model)
            prompt.checkpoints = (len(prompt.embeddings) - 1,)  # what a resumed row has said is tokens again
            return
        row = prompt.sequence
        shared = self._prefix_cache.match(row).shared
        prompt.cache, prompt.computed = self._prefix_cache.restore(row)
        waiting = (other.sequence for other in prompts if other.cache is None and other.embeddings is None)
        self._add_checkpoints(prompt, {shared, *self._sharing.start(row, waiting)})
        if not row.preempted:
            row.metrics.cached_tokens = prompt.computed

    def remove(self, sequence: Sequence) -> None:
        """A row's prompt is computed, or nobody wants it any more."""
        self._sharing.remove(sequence)

    def _add_checkpoints(self, prompt: PrefillRequest, shared: Iterable[int]) -> None:
        """Keep what a prompt under way has in common with others, if its cache cannot be cut later."""
        more = self._prefix_cache.checkpoints(prompt.sequence, prompt.computed, shared)
        prompt.checkpoints = tuple(sorted({*prompt.checkpoints, *more}))
