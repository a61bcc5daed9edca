"""By what numbers the prefix cache knows the tokens of a sequence: themselves, where features add nothing."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

from greenroom.engine.sequences.sequence import Sequence


def prefill_keys(sequence: Sequence) -> GenericSequence[int]:
    """Return the keys of what has to be computed before a sequence decodes."""
    if sequence.features is None:
        return sequence.prefill_tokens
    return (*sequence.features.keys, *sequence.prefill_tokens[len(sequence.prompt) :])


def keys_so_far(sequence: Sequence) -> GenericSequence[int]:
    """Return the keys of its prompt and of what was read of its answer."""
    prompt = sequence.prompt if sequence.features is None else sequence.features.keys
    return (*prompt, *sequence.answer)
