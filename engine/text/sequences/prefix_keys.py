"""Prefix cache keys of a sequence's tokens: their ids, or keys that images and other features supply."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

from greenroom.engine.text.sequences.sequence import Sequence


def prefill_keys(sequence: Sequence) -> GenericSequence[int]:
    """Return the prefix cache keys of all tokens to prefill."""
    if sequence.features is None:
        return sequence.prefill_tokens
    return (*sequence.features.keys, *sequence.prefill_tokens[len(sequence.prompt) :])


def keys_so_far(sequence: Sequence) -> GenericSequence[int]:
    """Return the prefix cache keys of the prompt and of the answer tokens read so far."""
    prompt = sequence.prompt if sequence.features is None else sequence.features.keys
    return (*prompt, *sequence.answer)
