"""What the engine asks of a loaded model, whatever its library's class is like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import attrs
import numpy as np

from greenroom.engine.sound.speech.preparing.prepared_speech import PreparedSpeech, Samples


@attrs.frozen(eq=False)
class Spoken:
    """A chunk of speech.

    Args:
        prompt_tokens: That the model has read for it, beyond those of the chunks before.
        tokens: That it has generated, where it does so one by one.
    """

    samples: Samples = attrs.field(repr=False)
    prompt_tokens: int = 0
    tokens: int = 0


class Speaker(Protocol):
    """A model that speaks. It may keep state while it does: a piece is finished before the next begins."""

    @property
    def sample_rate(self) -> int:
        """Samples a second."""

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        """Yield the speech of a piece of text, computed as it is asked for.

        Raises:
            ProblemError: This piece cannot be spoken so.
        """


def as_samples(audio: Any) -> Samples:
    """Return a library's audio, one channel of it, as numbers that are free of its thread."""
    array = np.array(audio, dtype=np.float32)
    return array.reshape(-1)
