"""mlx-lm's prefill of the end of a conversation, behind a cache of its beginning."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from greenroom.tests.bench.bare_loops import Baseline
from greenroom.tests.bench.load_client import ChatMessages


class BareContinuation:
    """mlx-lm's prefill in this process.

    Args:
        model: Local folder, or id of a hub model on this machine.
    """

    def __init__(self, model: str) -> None:
        self._baseline = Baseline(model)

    def __call__(self, cached: ChatMessages, messages: ChatMessages) -> float:
        """Return the seconds for the tokens of `messages` behind those that it shares with `cached`."""
        began, _ = self._prefill(cached, messages)
        return time.perf_counter() - began

    def new_tokens(self, cached: ChatMessages, messages: ChatMessages) -> int:
        """Prefill the same, and return the number of tokens."""
        return self._prefill(cached, messages)[1]

    def _prefill(self, cached: ChatMessages, messages: ChatMessages) -> tuple[float, int]:
        import mlx.core as mx
        from mlx_lm.generate import generate_step

        from greenroom.engine.kv_cache import caches

        model: Any = self._baseline.model
        prompt = self._baseline.prompt_tokens(messages)
        shared = _shared_length(self._baseline.prompt_tokens(cached), prompt)
        cache = caches.new_cache(model)
        if shared:
            model(mx.array(prompt[:shared])[None], cache=cache)
            mx.eval(caches.state(cache))
        began = time.perf_counter()
        for _ in generate_step(mx.array(prompt[shared:]), model, max_tokens=0, prompt_cache=cache):
            pass
        mx.eval(caches.state(cache))
        return began, len(prompt) - shared


def _shared_length(prefix: Sequence[int], prompt: Sequence[int]) -> int:
    """Return the length of the common beginning, which leaves at least the last token of the prompt."""
    pairs = enumerate(zip(prefix, prompt[:-1], strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(prefix), len(prompt) - 1))
