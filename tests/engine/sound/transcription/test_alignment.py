"""Token times equal those of mlx-audio's element-wise version of OpenAI's method."""

from __future__ import annotations

import numpy as np
import pytest

from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.sound.transcription.whisper_words import normalize, token_times


@pytest.mark.parametrize("shape", [(1, 3, 9), (2, 6, 40), (3, 25, 140)])
@pytest.mark.parametrize("seed", range(4))
def test_times_equal_those_of_mlx_audio(shape: tuple[int, int, int], seed: int) -> None:
    import mlx.core as mx

    theirs = import_model_code("mlx_audio.stt.models.whisper.timing")
    weights = np.random.default_rng(seed).random(shape).astype(np.float32)
    mean = np.mean([normalize(head) for head in weights], axis=0)
    spread = weights.std(axis=-2, keepdims=True)
    smoothed = theirs.median_filter(mx.array((weights - weights.mean(axis=-2, keepdims=True)) / spread), 7)
    expected = np.array(mx.mean(smoothed, axis=0))
    assert mean == pytest.approx(expected, abs=1e-4)
    tokens, positions = theirs.dtw(-mean)
    begins = np.pad(np.diff(tokens), (1, 0), constant_values=1).astype(bool)
    assert token_times(mean).tolist() == positions[begins].tolist()


def test_attention_that_tells_nothing_gives_times_all_the_same() -> None:
    weights = np.full((5, 100), 0.01, np.float32)
    times = token_times(normalize(weights))
    assert len(times) == 5
    assert times.tolist() == sorted(times.tolist())
