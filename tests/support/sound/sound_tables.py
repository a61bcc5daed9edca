"""Tables of speech and transcription models by architecture; `make sound-table` rewrites them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from greenroom.tests.support.sound.listening_trials import hear, listening_architectures
from greenroom.tests.support.sound.outcomes import Outcome, outcomes_of, table_of
from greenroom.tests.support.sound.speaking_trials import cached_codec, speak, speaking_architectures

NOTES = Path(__file__).resolve().parents[3] / "notes"
SPEECH = NOTES / "speech-table.md"
TRANSCRIPTION = NOTES / "transcription-table.md"

_HEAD = """\
# Models that {verb}, by architecture

Made by `make sound-table` (`ARGS="soprano outetts"` for some rows) with mlx-audio {version}: every
architecture of its `{folder}` is opened once. Those with a tiny model (random weights) are compared with
mlx-audio's own `generate`. [Speech](speech.md) says what requests may contain."""


def outcomes(names: Iterable[str], trial: Callable[[str, Path], Outcome]) -> dict[str, Outcome]:
    """Return the outcome of each architecture, and print it."""
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model").mkdir()
            found[name] = trial(name, Path(folder, "model"))
        print(f"{name}: {found[name].word} {found[name].why}", flush=True)
    return found


def speech_outcomes(names: Iterable[str]) -> dict[str, Outcome]:
    """Return the outcome of each speech architecture."""
    with tempfile.TemporaryDirectory() as cache, cached_codec(Path(cache)):
        return outcomes(names, speak)


def transcription_outcomes(names: Iterable[str]) -> dict[str, Outcome]:
    """Return the outcome of each transcription architecture."""
    return outcomes(names, hear)


def head(verb: str, folder: str) -> str:
    """Return the text above a table."""
    return _HEAD.format(verb=verb, folder=folder, version=version("mlx-audio"))


def _rewrite(page: Path, top: str, found: Mapping[str, Outcome], keep: bool) -> None:
    kept = outcomes_of(page.read_text(encoding="utf-8")) if keep else {}
    page.write_text(table_of(top, {**kept, **found}), encoding="utf-8")


def main(arguments: Sequence[str]) -> int | str:
    """Rewrite both pages, or the rows of some architectures; return the exit status, or what is broken."""
    voices, ears = speaking_architectures(), listening_architectures()
    asked = set(arguments) or {*voices, *ears}
    spoken = speech_outcomes(name for name in voices if name in asked)
    heard = transcription_outcomes(name for name in ears if name in asked)
    _rewrite(SPEECH, head("speak", "tts/models"), spoken, bool(arguments))
    _rewrite(TRANSCRIPTION, head("transcribe", "stt/models"), heard, bool(arguments))
    broken = [name for name, each in {**spoken, **heard}.items() if each.word == "broken"]
    return f"broken: {', '.join(broken)}" if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
