"""A speech request that its adapter has prepared."""

from __future__ import annotations

import hashlib

import attrs
import numpy as np
import numpy.typing as npt

from greenroom.schemas.messages.prepared_input import SingleAnswerInput

Samples = npt.NDArray[np.float32]
"""Mono samples from -1 to 1, `[samples]`."""

REFERENCE_RATE = 24_000
"""Sample rate of reference audio in Hz; it is resampled later for models with another rate."""


@attrs.frozen(eq=False)
class Reference:
    """A recording whose voice is cloned.

    Args:
        samples: Samples at `REFERENCE_RATE`.
        text: Transcript of the recording; empty if not known.
        cache_salt: Name of those who share what is computed of it; empty for all.
    """

    samples: Samples = attrs.field(repr=False)
    text: str = ""
    cache_salt: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the samples and the salt, by which what is computed of the recording is found."""
        return hashlib.sha256(self.cache_salt.encode() + self.samples.tobytes()).hexdigest()


@attrs.frozen
class PreparedSpeech(SingleAnswerInput):
    """The text and options of a speech request.

    Args:
        pieces: Pieces of the text, in order; none is empty.
        voice: Name of a voice of the model; None for the model's default.
        speed: Speed passed to the model.
        tempo: Factor by which the audio is sped up afterwards.
        instructions: Speaking instructions; empty if there are none.
        language: The model's name of the language; None for the model's default.
        reference: Recording whose voice is cloned, or None.
    """

    pieces: tuple[str, ...]
    voice: str | None = None
    speed: float = 1.0
    tempo: float = 1.0
    instructions: str = ""
    language: str | None = None
    reference: Reference | None = None
