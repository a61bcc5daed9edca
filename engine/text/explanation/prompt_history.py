"""The latest prompts of each client, with which new ones are compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as GenericSequence

from greenroom.engine.text.explanation.compare_prompts import KnownPrompt, find_difference
from greenroom.engine.text.prefix_cache.memory.tree import common_length, pack
from greenroom.engine.text.sequences.prefix_keys import prefill_keys
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.events.explanation import PromptDifference
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest

_PROMPTS = 32
"""Most prompts of a client."""

_BYTES = 16 * 1024 * 1024
"""Most bytes of the prompts of all clients."""

_PART_BYTES = 300
"""Bytes that an outlined part takes, about."""

ClientKey = tuple[str, str | None]
"""Name of a client, and of the LoRA adapter that it uses."""


class PromptHistory:
    """Remembers the latest prompts of each client, as long as the model is loaded.

    Prompts of different clients are never compared. A prompt replaces an earlier one that it continues.

    Args:
        budget: Maximum bytes to remember; the clients that sent nothing for longest are forgotten first.
    """

    def __init__(self, budget: int = _BYTES) -> None:
        self.nbytes = 0
        self._budget = budget
        self._clients: OrderedDict[ClientKey, list[KnownPrompt]] = OrderedDict()

    def explain(self, request: InferenceRequest, prepared: PreparedPrompt, sequence: Sequence) -> None:
        """Compare a request's prompt with its client's earlier ones, for the explanation of its choices."""
        turns_end = prepared.checkpoints[-1] if prepared.checkpoints else 0
        prompt = KnownPrompt(pack(prefill_keys(sequence)), prepared.outline, turns_end)
        difference = self.compare((request.client, request.adapter), prompt)
        for choice in (sequence, *sequence.parallel_samples):
            choice.is_explained, choice.difference = True, difference

    def compare(self, client: ClientKey, prompt: KnownPrompt) -> PromptDifference | None:
        """Return the difference from the client's nearest earlier prompt, and remember this one.

        Returns None if the client is not known.
        """
        known = self._clients.setdefault(client, [])
        self._clients.move_to_end(client)
        difference = None
        if known:
            nearest = _nearest(prompt, known)
            difference = find_difference(prompt, nearest)
            if difference.part is None and len(prompt) >= len(nearest):
                self._remove(known, nearest)
        if (size := _size(prompt)) <= self._budget // 2:
            known.append(prompt)
            self.nbytes += size
        self._shrink(known)
        return difference

    def _shrink(self, known: list[KnownPrompt]) -> None:
        while len(known) > _PROMPTS:  # the shortest of the older half, which is no session
            self._remove(known, min(known[: _PROMPTS // 2], key=len))
        while self.nbytes > self._budget or not next(iter(self._clients.values()), True):
            oldest, prompts = next(iter(self._clients.items()))
            if prompts:
                self._remove(prompts, prompts[0])
            if not prompts:
                del self._clients[oldest]

    def _remove(self, known: list[KnownPrompt], prompt: KnownPrompt) -> None:
        known.remove(prompt)
        self.nbytes -= _size(prompt)


def _nearest(prompt: KnownPrompt, known: GenericSequence[KnownPrompt]) -> KnownPrompt:
    """Return the prompt with most in common: parts, else tokens at the beginning; the latest of equals."""
    parts = prompt.sizes.items()
    equal = [sum(size for digest, size in parts if digest in earlier.sizes) for earlier in known]
    best = [earlier for earlier, size in zip(known, equal, strict=True) if size == max(equal)]
    if len(best) == 1:
        return best[0]
    return max(reversed(best), key=lambda earlier: common_length(prompt.tokens, earlier.tokens))


def _size(prompt: KnownPrompt) -> int:
    return len(prompt.tokens) + _PART_BYTES * (len(prompt.sizes) + 2)
