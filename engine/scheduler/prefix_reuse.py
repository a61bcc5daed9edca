"""What need not be computed of a prompt: its beginning, if it is known or another prompt's as well."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.prefix_cache.client import PrefixCacheClient
from greenroom.engine.scheduler.prefix_sharing import PrefixSharing
from greenroom.engine.scheduler.prompt import Prompt
from greenroom.engine.sequences.sequence import Sequence


class PrefixReuse:
    """Gives prompts their caches, filled as far as somebody has computed them.

    Args:
        model: Whose caches they are.
        recall: What is known of prompts.
    """

    def __init__(self, model: Any, recall: PrefixCacheClient) -> None:
        self._model = model
        self._recall = recall
        self._leading = PrefixSharing(recall.is_cacheable)

    def arrives(self, prompt: Prompt, prompts: Iterable[Prompt]) -> None:
        """A prompt waits for its turn; those under way pause where they part with it, if they have to."""
        shared = self._leading.arrives(prompt.row) if prompt.embeddings is None else {}
        for other in prompts:
            if other.row in shared:
                self._pause_at(other, [shared[other.row]])

    def look_up(self, prompts: Iterable[Prompt]) -> None:
        """See what need not be computed of prompts whose turn has not come."""
        version = self._recall.version
        for prompt in prompts:
            if prompt.cache is None and prompt.version != version and prompt.embeddings is None:
                prompt.done, prompt.version = self._recall.match(prompt.row).usable, version

    def waits(self, prompt: Prompt) -> bool:
        """Whether a prompt that has not begun had better continue from one that is under way."""
        return prompt.cache is None and self._leading.should_wait(prompt.row, prompt.done)

    def begin(self, prompt: Prompt, prompts: GenericSequence[Prompt]) -> None:
        """A prompt's turn has come, if it had not before.

        Args:
            prompts: All that are not wholly computed.
        """
        if prompt.cache is not None:
            return
        if prompt.embeddings is not None:
            prompt.cache = caches.new_cache(self._model)
            prompt.stops = (len(prompt.embeddings) - 1,)  # what a resumed row has said is tokens again
            return
        row = prompt.row
        shared = self._recall.match(row).shared
        prompt.cache, prompt.done = self._recall.restore(row)
        waiting = (other.row for other in prompts if other.cache is None and other.embeddings is None)
        self._pause_at(prompt, {shared, *self._leading.begins(row, waiting)})
        if not row.preempted:
            row.cached = prompt.done

    def ends(self, row: Sequence) -> None:
        """A row's prompt is computed, or nobody wants it any more."""
        self._leading.ends(row)

    def _pause_at(self, prompt: Prompt, shared: Iterable[int]) -> None:
        """Keep what a prompt under way has in common with others, if its cache cannot be cut later."""
        more = self._recall.checkpoints(prompt.row, prompt.done, shared)
        prompt.stops = tuple(sorted({*prompt.stops, *more}))
