"""The engine of a loaded speech model and its requests, all on one thread."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.load_failures import (
    failure_reason,
    library_missing,
    missing_module,
    named_failures,
)
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import (
    FetchRefusedError,
    import_model_code,
    named_load_errors,
    offline,
)
from greenroom.engine.loading.read_weights import read_weights, recorded_files, weight_bytes
from greenroom.engine.resources.memory_account import Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.sound.sound_engine import SoundEngine
from greenroom.engine.sound.speech.abilities import SpeechAbilities, check_speech_weights, find_abilities
from greenroom.engine.sound.speech.speakers import AnySpeaker, KokoroSpeaker, PocketSpeaker, Speaker
from greenroom.engine.sound.speech.speech_adapter import PreparedSpeech, SpeechAdapter
from greenroom.engine.sound.speech.utterance import NotFiniteError, Utterance
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError, load_failed, model_broken

log = get_logger(__name__)


class SpeechEngine(SoundEngine[Speaker, Utterance]):
    """An engine whose step computes part of one piece of text.

    Models may keep their decoder's state on the model object, so one piece is in progress at a time.

    Args:
        share: The model's share of the memory account, charged with the weights.
        transient: Memory that speaking takes in bytes, without the weights.
        clock: Clock in seconds, of any origin.
        on_close: Callback that frees memory which the library keeps for the model.
    """

    piece = "Speaking"

    def __init__(
        self,
        speaker: Speaker,
        folder: Path,
        share: Share,
        transient: int,
        clock: Callable[[], float] = time.perf_counter,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(speaker, share, 1, self._expected_seconds, clock)
        self._sample_rate = speaker.sample_rate
        self._folder = folder
        self._transient = transient
        self._on_close = on_close
        self._letters, self._seconds = 0, 0.0

    def submit(self, request: InferenceRequest, prepared: PreparedSpeech) -> None:
        self.resume(Utterance(request, prepared, self._sample_rate, self._clock))

    def _release_model(self) -> None:
        super()._release_model()
        self._on_close()

    def _piece_bytes(self, request: Utterance) -> int:
        return self._transient

    def _compute(self, model: Speaker, request: Utterance) -> list[InferenceEvent]:
        self._letters += 0 if request.in_piece else request.next_letters
        with offline():
            return request.advance(model)

    def _cost(self, seconds: float) -> float:
        self._seconds += seconds
        return seconds

    def _expected_seconds(self, utterance: Utterance) -> float:
        """Return the expected duration of a request's next piece, from those of earlier pieces."""
        return utterance.next_letters * self._seconds / max(1, self._letters)

    def _problem_of(self, error: Exception, request: Utterance) -> Problem:
        if isinstance(error, ProblemError):
            return error.problem
        if isinstance(error, NotFiniteError):
            return model_broken("this text", "input")
        if isinstance(error, FetchRefusedError):
            return load_failed(self._folder.name, str(error))
        log.exception("request failed", request_id=request.request_id, step="speech")
        if module := missing_module(error):  # Some models' voice files need a further library.
            return library_missing(self._folder.name, module)
        reason = failure_reason(error, self._folder)
        if isinstance(error, ValueError):  # Libraries raise it for missing or wrong arguments.
            return Problem(
                400, "invalid_value", f"'{self._folder.name}' cannot speak this: {reason}", "input"
            )
        return Problem(500, "internal_error", "The speech of this text failed; see the server's log.")


_LEAST_TRANSIENT = 32 << 20
_MOST_TRANSIENT = 1 << 30
"""Limit, in bytes, on the estimate of one piece's memory besides the weights.

Below it, the estimate is the size of the weights (measured: Kokoro 1.5 times, Pocket TTS 0.2 times it).
"""


def open_speech_adapter(folder: Path, record: CapabilityRecord, model: str) -> SpeechAdapter:
    """Return the adapter that prepares a model's requests. Raises ProblemError (501): a library is missing;
    503: the architecture is not supported.
    """
    with named_failures(folder, model), offline():
        return SpeechAdapter(model, find_abilities(folder, record.architecture))


def open_speech_engine(load: ModelLoad) -> SpeechEngine:
    """Load a model's weights and its engine, confined to this thread.

    Raises:
        ProblemError: 501, 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    use_device(load.settings)
    with load.open_share() as (share, charge):
        with named_load_errors(load.folder), offline():
            abilities = find_abilities(load.folder, load.record.architecture)
            model = _load_model(load, abilities, charge)
            speaker = open_speaker(model, load.folder, abilities)
        transient = min(max(share.weights, _LEAST_TRANSIENT), _MOST_TRANSIENT)
        return SpeechEngine(
            speaker, load.folder, share, transient, load.clock, partial(forget_codecs, type(model))
        )


def _load_model(load: ModelLoad, abilities: SpeechAbilities, charge: Callable[[int], None]) -> Any:
    check_speech_weights(load.folder)
    with recorded_files(load.is_abandoned) as files:
        model = load_speaking_model(load.folder, abilities.architecture)
    mx.eval(mx.random.state)  # Otherwise its graph keeps the layers' initial random weights alive.
    charge(weight_bytes(model) + codec_bytes(model, abilities.architecture))
    read_weights(model, files, load.progress, load.is_abandoned)
    return model


def open_speaker(model: Any, folder: Path, abilities: SpeechAbilities) -> Speaker:
    match abilities.architecture:
        case "pocket_tts":
            return PocketSpeaker(model)
        case "kokoro":
            return KokoroSpeaker(model, folder)
        case _:
            return AnySpeaker(model, abilities)


_NAMED_TOKENIZER = frozenset({"llama", "outetts"})
"""Architectures whose code downloads the tokenizer of another repository, even if the folder has one."""


def load_speaking_model(folder: Path, architecture: str) -> Any:
    """Return the library's model, with the architecture given: the library would guess it from the path."""
    download_codec(architecture)
    if architecture in _NAMED_TOKENIZER:
        return _load_with_own_tokenizer(folder, architecture)
    load_lazily = import_model_code("mlx_audio.tts.utils").load_model
    return load_lazily(folder, lazy=True, model_type=architecture, model_name_parts=[])


def _load_with_own_tokenizer(folder: Path, architecture: str) -> Any:
    """Load as the library's `base_load_model` does, but with the tokenizer of the model's own folder."""
    library = import_model_code("mlx_audio.utils")
    module = import_model_code(f"mlx_audio.tts.models.{architecture}")
    config = {**library.load_config(folder), "model_path": str(folder), "tokenizer_name": str(folder)}
    model = module.Model(module.ModelConfig.from_dict(config))
    weights = model.sanitize(library.load_weights(folder))
    library.apply_quantization(model, config, weights, getattr(model, "model_quant_predicate", None))
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    return model


# Audio codecs that a speech model uses beside its own weights.
#
# For some architectures, the library's code loads a codec at import, into a variable of its module. So the
# codec is no parameter of the model, and it stays in memory when the model is unloaded.

_NAMED = {"outetts": "mlx-community/dac-speech-24khz-1.5kbps"}
"""Codec repositories that an architecture's code loads only with the first text."""


def download_codec(architecture: str) -> Path | None:
    """Return the folder of the codec that an architecture loads later, after a download; None if it has none.
    Raises huggingface_hub.errors.LocalEntryNotFoundError: it is not in the cache, and there is no network.
    """
    if (codec := _NAMED.get(architecture)) is None:
        return None
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repo_id=codec, allow_patterns=["*.safetensors", "*.json"]))


def codec_bytes(model: Any, architecture: str) -> int:
    """Return the bytes of the codecs that a model uses, read or not."""
    read = sum(map(weight_bytes, _codecs_of(type(model))))
    folder = download_codec(architecture)
    return (
        read if folder is None else read + sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    )


def forget_codecs(code: type[Any]) -> None:
    """Remove a model's code from the imported modules, so that its codecs can be freed."""
    if any(_codecs_of(code)):
        for name in (code.__module__, code.__module__.rpartition(".")[0]):
            sys.modules.pop(name, None)


def _codecs_of(code: type[Any]) -> Iterator[Any]:
    import mlx.nn as nn

    module = sys.modules.get(code.__module__)
    return (value for value in getattr(module, "__dict__", {}).values() if isinstance(value, nn.Module))
