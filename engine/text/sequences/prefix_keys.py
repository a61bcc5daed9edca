"""Keys of a sequence's tokens in the prefix cache: the token ids, unless features add to them."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

from greenroom.engine.text.sequences.sequence import Sequence


def prefill_keys(sequence: Sequence) -> GenericSequence[int]:
    """Return the keys of all tokens computed before the sequence decodes."""
    if sequence.features is None:
        return sequence.prefill_tokens
    return (*sequence.features.keys, *sequence.prefill_tokens[len(sequence.prompt) :])


def keys_so_far(sequence: Sequence) -> GenericSequence[int]:
    """Return the keys of the prompt and of the answer tokens read so far."""
    prompt = sequence.prompt if sequence.features is None else sequence.features.keys
    return (*prompt, *sequence.answer)
