"""Selection of prompts that share a prefill chunk."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.engine.text.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill.prefill_request import PrefillRequest
from greenroom.engine.text.scheduler.prefill.prefill_runner import PrefillRunner
from greenroom.engine.text.scheduler.prefill.prefix_reuse import PrefixReuse


class Cobatching:
    """Chooses prompts that share a chunk: several only if all of their remaining tokens fit into it.

    Args:
        policy: Limits the padding of a chunk.
        prefix_reuse: Restores cached prefixes.
        runner: Reserves memory for the shared KV cache.
    """

    def __init__(self, policy: PrefillPolicy, prefix_reuse: PrefixReuse, runner: PrefillRunner) -> None:
        self._policy = policy
        self._prefix_reuse = prefix_reuse
        self._runner = runner

    def choose(
        self, first: PrefillRequest, requests: Iterable[PrefillRequest], tokens: int
    ) -> list[PrefillRequest]:
        """Return the prompts of the next chunk.

        Args:
            first: Prompt that the chunk must contain; its cached prefix is restored.
            requests: All requests whose prompts are not fully computed.
            tokens: Size of the chunk in tokens, padding included.
        """
        whole = [
            request
            for request in requests
            if request.sequence.features is None and request.remaining and not request.alone
        ]
        if first not in whole or len(whole) == 1 or first.remaining > tokens // 2:
            return [first]
        to_the_end = first.until_checkpoint == first.remaining
        if first.cache is None or not self._runner.can_cobatch(first.cache) or not to_the_end:
            return [first]
        whole = [request for request in whole if not self._prefix_reuse.should_wait(request)]
        remaining = [request.remaining for request in whole]
        chosen = [whole[index] for index in self._policy.cobatched(remaining, whole.index(first), tokens)]
        longest = 2 * len(first.sequence.prefill_tokens)
        chosen = [
            request
            for request in chosen
            if request is first or self._prefix_reuse.start_whole(request, requests, longest)
        ]
        return chosen if self._runner.reserve(chosen) else [first]
