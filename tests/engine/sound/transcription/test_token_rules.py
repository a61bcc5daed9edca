"""Whisper's rules for time stamps, against OpenAI's rules reimplemented without MLX."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from greenroom.engine.sound.transcription.whisper_decoding import TokenRules, WhisperVocabulary

SIZE, END, FIRST = 120, 40, 60
"""Vocabulary size and limits: text below 40, control tokens up to 60, time stamps from there."""
VOCABULARY = WhisperVocabulary(
    None, END, 41, 42, 43, 44, 45, 46, FIRST, {}, (3, 41, 42, 43, 44, 46), (7, END)
)


def allowed_by_openai(logits: NDArray[np.float32], written: list[int]) -> NDArray[np.bool_]:
    """Return the tokens allowed by `ApplyTimestampRules` and related filters of OpenAI's `decoding.py`."""
    logits = logits.copy()
    logits[[*VOCABULARY.suppressed, VOCABULARY.no_timestamps]] = -np.inf
    if not written:
        logits[list(VOCABULARY.blank)] = -np.inf
        logits[:FIRST] = -np.inf
        logits[FIRST + 51 :] = -np.inf
    last_was = len(written) >= 1 and written[-1] >= FIRST
    before_was = len(written) < 2 or written[-2] >= FIRST
    if last_was and before_was:
        logits[FIRST:] = -np.inf
    elif last_was:
        logits[:END] = -np.inf
    stamps = [token for token in written if token >= FIRST]
    if stamps:
        earliest = stamps[-1] if last_was and not before_was else stamps[-1] + 1
        logits[FIRST:earliest] = -np.inf
    chances = np.exp(logits - logits[np.isfinite(logits)].max())
    if chances[FIRST:].sum() > chances[:FIRST].max():
        logits[:FIRST] = -np.inf
    allowed: NDArray[np.bool_] = np.isfinite(logits)
    return allowed


@pytest.mark.parametrize("seed", range(25))
def test_whatever_has_been_written_the_same_tokens_may_follow(seed: int) -> None:
    import mlx.core as mx

    random = np.random.default_rng(seed)
    rules = TokenRules(VOCABULARY, SIZE)
    state, written = rules.nothing_written(), list[int]()
    for _ in range(14):
        logits = random.standard_normal(SIZE).astype(np.float32) * 3
        logits[FIRST:] -= random.choice([0, 4])  # Otherwise the many time stamps nearly always win.
        filtered = np.array(rules.filter(mx.array(logits)[None], state))[0]
        allowed = allowed_by_openai(logits, written)
        assert np.isfinite(filtered).tolist() == allowed.tolist()
        if not allowed.any():
            break
        token = int(random.choice(np.flatnonzero(allowed)))
        if token == END:
            break
        written.append(token)
        state = rules.add(state, mx.array([token]))
