"""The engine's interface to a loaded speech model of any library class."""

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
        prompt_tokens: Number of prompt tokens read for it, beyond those of earlier chunks.
        tokens: Number of tokens generated, if the model generates one by one.
    """

    samples: Samples = attrs.field(repr=False)
    prompt_tokens: int = 0
    tokens: int = 0


class Speaker(Protocol):
    """A speech model. It may keep state while it speaks, so a piece is finished before the next begins."""

    @property
    def sample_rate(self) -> int:
        """Sample rate in Hz."""

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        """Yield the audio of a piece of text, computed on demand.

        Raises:
            ProblemError: The piece cannot be spoken with these options.
        """


def as_samples(audio: Any) -> Samples:
    """Return a library's mono audio as a NumPy array, which is not bound to a thread."""
    array = np.array(audio, dtype=np.float32)
    return array.reshape(-1)
