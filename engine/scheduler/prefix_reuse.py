"""What need not be computed of a prompt: a prefix that is cached, or that another prompt computes."""

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
    """Gives requests their caches, filled with the longest prefix that was computed before.

    Args:
        model: Whose caches they are.
        prefix_cache: What was computed before.
    """

    def __init__(self, model: Any, prefix_cache: PrefixCacheClient) -> None:
        self._model = model
        self._prefix_cache = prefix_cache
        self._sharing = PrefixSharing(prefix_cache.is_cacheable)

    def add(self, request: PrefillRequest, requests: Iterable[PrefillRequest]) -> None:
        """Compare a new request with those under way, which get checkpoints where they diverge from it."""
        shared = self._sharing.add(request.sequence) if request.embeddings is None else {}
        for other in requests:
            if other.sequence in shared:
                self._add_checkpoints(other, [shared[other.sequence]])

    def match(self, requests: Iterable[PrefillRequest]) -> None:
        """Match requests that have not started with the prefix cache, if it has changed."""
        version = self._prefix_cache.version
        for request in requests:
            if request.cache is None and request.cache_version != version and request.embeddings is None:
                request.computed = self._prefix_cache.match(request.sequence).usable
                request.cache_version = version

    def should_wait(self, request: PrefillRequest) -> bool:
        """Return whether a request that has not started had better continue from one that is under way."""
        return request.cache is None and self._sharing.should_wait(request.sequence, request.computed)

    def start(self, request: PrefillRequest, requests: GenericSequence[PrefillRequest]) -> None:
        """Give a request its cache, if it has none.

        Args:
            requests: All that are not wholly computed.
        """
        if request.cache is not None:
            return
        if request.embeddings is not None:
            request.cache = caches.new_cache(self._model)
            # The answer so far of a resumed sequence is tokens again.
            request.checkpoints = (len(request.embeddings) - 1,)
            return
        sequence = request.sequence
        shared = self._prefix_cache.match(sequence).shared
        request.cache, request.computed = self._prefix_cache.restore(sequence)
        waiting = (other.sequence for other in requests if other.cache is None and other.embeddings is None)
        self._add_checkpoints(request, {shared, *self._sharing.start(sequence, waiting)})
        if not sequence.preempted:
            sequence.metrics.cached_tokens = request.computed

    def start_whole(
        self, request: PrefillRequest, requests: GenericSequence[PrefillRequest], max_length: int
    ) -> bool:
        """Start a request; return whether its rest can be computed at once beside others.

        Args:
            max_length: Tokens of a prompt whose cached prefix does not pad the others too much.
        """
        self.start(request, requests)
        return request.until_checkpoint == request.remaining and (
            not request.computed or len(request.sequence.prefill_tokens) <= max_length
        )

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence whose prompt is computed or cancelled."""
        self._sharing.remove(sequence)

    def _add_checkpoints(self, request: PrefillRequest, shared: Iterable[int]) -> None:
        """End chunks where a prompt diverges from others, if its cache cannot be cut later."""
        added = self._prefix_cache.checkpoints(request.sequence, request.computed, shared)
        request.checkpoints = tuple(sorted({*request.checkpoints, *added}))
