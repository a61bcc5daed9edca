"""Trials of speech architectures: a tiny model of each is opened and compared with mlx-audio."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from greenroom.engine.catalog.libraries import models_of
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.sound.speech.abilities import find_abilities
from greenroom.engine.sound.speech.speech_adapter import Samples
from greenroom.engine.sound.speech.speech_engine import load_speaking_model, open_speech_adapter
from greenroom.schemas.events.events import Failed
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.spoken_requests import open_adapter, open_engine, run, samples_of, spoken
from greenroom.tests.support.models.tiny_orpheus import make_tiny_orpheus, make_tiny_vyvo
from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket
from greenroom.tests.support.sound.hub_codecs import make_hub_codecs
from greenroom.tests.support.sound.outcomes import Outcome, one_line
from greenroom.tests.support.sound.speaking_kinds import SPEAKING_KINDS
from greenroom.tests.support.sound.tiny_sound_models import make_sound_model

TEXT = "The sea."
SEED = 7
_INTERVAL = 0.32

_OWN_MAKERS: Mapping[str, Callable[[Path], Path]] = {
    "llama": make_tiny_orpheus,
    "pocket_tts": make_tiny_pocket,
    "qwen3": make_tiny_vyvo,
}


def speaking_architectures() -> list[str]:
    """Return the names of the installed mlx-audio's speech architectures."""
    return sorted(models_of("mlx_audio", "tts/models"))


def speak(architecture: str, folder: Path) -> Outcome:
    """Return the outcome of generating speech with an architecture.

    Args:
        folder: Empty folder, whose name must not suggest an architecture.
    """
    if architecture not in _OWN_MAKERS and architecture not in SPEAKING_KINDS:
        return _without_weights(architecture, folder)
    make(architecture, folder)
    try:
        own = library_samples(architecture, folder)
    except Exception as error:
        return Outcome("library fails", f"{type(error).__name__}: {one_line(error)}")
    heard = greenroom_samples(folder)
    if isinstance(heard, str):
        return Outcome("broken", heard)
    expected = np.rint(np.clip(own, -1, 1) * 32767).astype("<i2")
    return Outcome("equal") if np.array_equal(heard, expected) else Outcome("broken", "other samples")


def make(architecture: str, folder: Path) -> None:
    """Make the tiny model of an architecture."""
    if architecture in _OWN_MAKERS:
        _OWN_MAKERS[architecture](folder)
    else:
        make_sound_model(folder, "tts", architecture, SPEAKING_KINDS[architecture])


def library_samples(architecture: str, folder: Path) -> Samples:
    """Return the samples of mlx-audio's own `generate`, for text chunks of the same length."""
    import mlx.core as mx

    streams = find_abilities(folder, architecture).streams
    model = load_speaking_model(folder, architecture)
    mx.random.seed(SEED)
    options = {"stream": True, "streaming_interval": _INTERVAL} if streams else {}
    chunks = [np.array(result.audio, np.float32) for result in model.generate(text=TEXT, **options)]
    return np.concatenate([chunk.reshape(-1) for chunk in chunks])


def greenroom_samples(folder: Path) -> npt.NDArray[np.int16] | str:
    """Return Greenroom's samples, or an error message."""
    import mlx.core as mx

    adapter, engine = open_adapter(folder), open_engine(folder)
    request = spoken(TEXT)
    engine.submit(request, adapter.prepare_input(request))
    mx.random.seed(SEED)
    events = list(run(engine))
    engine.close()
    last = events[-1][1]
    return last.problem.detail if isinstance(last, Failed) else samples_of(events)


@contextmanager
def cached_codec(folder: Path) -> Iterator[None]:
    """Place the hub's cache in a folder, with tiny codecs for architectures that take them from there."""
    from huggingface_hub import constants

    before = constants.HF_HUB_CACHE
    constants.HF_HUB_CACHE = str(make_hub_codecs(folder))
    try:
        yield
    finally:
        constants.HF_HUB_CACHE = before


def _without_weights(architecture: str, folder: Path) -> Outcome:
    (folder / "config.json").write_text(json.dumps({"model_type": architecture}))
    record = CapabilityRecord("speech", "default", architecture, 0)
    try:
        adapter = open_speech_adapter(folder, record, "model")
        if architecture == "kokoro":  # its text library depends on the language
            (folder / "voices").mkdir()
            (folder / "voices" / "af_heart.safetensors").touch()
            open_speech_adapter(folder, record, "model").prepare_input(spoken(TEXT))
        import_model_code(f"mlx_audio.tts.models.{architecture}")
    except ProblemError as error:
        return Outcome("refused", error.problem.detail)
    assert adapter is not None
    return Outcome("opened", "no tiny model of it is made here")
