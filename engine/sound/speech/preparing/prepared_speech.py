"""Text to speak that its adapter has made ready."""

from __future__ import annotations

import hashlib

import attrs
import numpy as np
import numpy.typing as npt

from greenroom.schemas.messages.prepared_input import SingleAnswerInput

Samples = npt.NDArray[np.float32]
"""One channel, -1 to 1, `[samples]`."""

REFERENCE_RATE = 24_000
"""Samples a second of reference audio, until a model of another rate gets it."""


@attrs.frozen(eq=False)
class Reference:
    """A recording whose voice is imitated.

    Args:
        samples: At `REFERENCE_RATE`.
        text: What is said in it; empty if that is not known.
    """

    samples: Samples = attrs.field(repr=False)
    text: str = ""

    @property
    def digest(self) -> str:
        """A name for it that no other recording has."""
        return hashlib.sha256(self.samples.tobytes()).hexdigest()


@attrs.frozen
class PreparedSpeech(SingleAnswerInput):
    """What is spoken, and how.

    Args:
        pieces: Of the text, in order; none is empty.
        voice: One of the model's; None leaves it to the model.
        speed: For the model itself.
        tempo: By which what it says is made faster afterwards.
        instructions: How to speak; empty if there are none.
        language: As the model calls it; None leaves it to the model.
    """

    pieces: tuple[str, ...]
    voice: str | None = None
    speed: float = 1.0
    tempo: float = 1.0
    instructions: str = ""
    language: str | None = None
    reference: Reference | None = None
