"""Sequences for schedulers under test; they are never decoded."""

from __future__ import annotations

import random
from typing import Any, cast

from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequence import Sequence


def sequence(name: str, tokens: int) -> Sequence:
    """Return a sequence without output tokens, with a prompt that shares no prefix with another."""
    text = cast(Any, None)
    prompt = random.Random(name).choices(range(300, 2000), k=tokens)
    return Sequence(name, prompt, 5, frozenset(), SamplingParameters(), text)
