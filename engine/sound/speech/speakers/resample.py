"""Reference audio at the rate that a model wants."""

from __future__ import annotations

from greenroom.engine.sound.speech.preparing.prepared_speech import Samples


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Return samples at another rate.

    Args:
        rate: Theirs, a second.
    """
    if rate == wanted:
        return samples
    from mlx_audio.resample import resample_audio_array

    resampled: Samples = resample_audio_array(samples, rate, wanted).astype("float32")
    return resampled
