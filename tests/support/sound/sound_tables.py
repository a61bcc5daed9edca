"""Tables of speech and transcription models by architecture; `make sound-table` rewrites them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from greenroom.tests.support.sound.listening_trials import hear, listening_architectures
from greenroom.tests.support.sound.outcomes import Outcome, table_of
from greenroom.tests.support.sound.speaking_trials import cached_codec, speak, speaking_architectures

NOTES = Path(__file__).resolve().parents[3] / "notes"
SPEECH = NOTES / "speech-table.md"
TRANSCRIPTION = NOTES / "transcription-table.md"

_HEAD = """\
# Models that {verb}, by architecture

Made by `make sound-table` with mlx-audio {version}: every architecture of its `{folder}` is opened once.
Those with a tiny model (random weights) are compared with mlx-audio's own `generate` (the same seed, on the
CPU). This shows nothing of real weights. [Speech](speech.md) says what requests may contain."""


def outcomes(names: Iterable[str], trial: Callable[[str, Path], Outcome]) -> Mapping[str, Outcome]:
    """Return the outcome of each architecture, and print it."""
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model").mkdir()
            found[name] = trial(name, Path(folder, "model"))
        print(f"{name}: {found[name].word} {found[name].why}", flush=True)
    return found


def speech_outcomes() -> Mapping[str, Outcome]:
    """Return the outcome of each speech architecture."""
    with tempfile.TemporaryDirectory() as cache, cached_codec(Path(cache)):
        return outcomes(speaking_architectures(), speak)


def transcription_outcomes() -> Mapping[str, Outcome]:
    """Return the outcome of each transcription architecture."""
    return outcomes(listening_architectures(), hear)


def head(verb: str, folder: str) -> str:
    """Return the text above a table."""
    return _HEAD.format(verb=verb, folder=folder, version=version("mlx-audio"))


if __name__ == "__main__":
    spoken, heard = speech_outcomes(), transcription_outcomes()
    SPEECH.write_text(table_of(head("speak", "tts/models"), spoken), encoding="utf-8")
    TRANSCRIPTION.write_text(table_of(head("transcribe", "stt/models"), heard), encoding="utf-8")
    broken = [name for name, each in {**spoken, **heard}.items() if each.word == "broken"]
    sys.exit(f"broken: {', '.join(broken)}" if broken else 0)
