"""Resampling of reference audio to a model's rate."""

from __future__ import annotations

from greenroom.engine.sound.speech.preparing.prepared_speech import Samples


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Return samples at another rate.

    Args:
        rate: Sample rate of `samples` in Hz.
        wanted: Target sample rate in Hz.
    """
    if rate == wanted:
        return samples
    from mlx_audio.resample import resample_audio_array

    resampled: Samples = resample_audio_array(samples, rate, wanted).astype("float32")
    return resampled
