"""Speakers: one for any model of mlx-audio, and those of Kokoro and Pocket."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import attrs
import mlx.core as mx
import numpy as np

from greenroom.engine.catalog.load_failures import library_missing
from greenroom.engine.catalog.model_files import list_voices
from greenroom.engine.sound.speech.abilities import SpeechAbilities, kokoro_voice
from greenroom.engine.sound.speech.speech_adapter import REFERENCE_RATE, PreparedSpeech, Reference, Samples
from greenroom.schemas.problems import ProblemError

_INTERVAL = 0.32  # Seconds of audio per chunk, for models that stream


class AnySpeaker:
    """Speaks with a model, passing only the options that its `generate` takes."""

    def __init__(self, model: Any, abilities: SpeechAbilities) -> None:
        self._model = model
        self._abilities = abilities

    @property
    def sample_rate(self) -> int:
        return int(self._model.sample_rate)

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        for result in self._model.generate(text=piece, **self._arguments(prepared)):
            yield Spoken(as_samples(result.audio), 0 if result.segment_idx else int(result.token_count or 0))

    def _arguments(self, prepared: PreparedSpeech) -> dict[str, Any]:
        abilities = self._abilities
        arguments: dict[str, Any] = {}
        if prepared.voice is not None:
            arguments["voice"] = prepared.voice
        if abilities.own_speed:
            arguments["speed"] = prepared.speed
        if abilities.instructions and prepared.instructions:
            arguments[abilities.instructions] = prepared.instructions
        if abilities.language and prepared.language is not None:
            arguments[abilities.language] = prepared.language
        if prepared.reference is not None:
            samples = resample(prepared.reference.samples, REFERENCE_RATE, self.sample_rate)
            arguments["ref_audio"] = mx.array(samples)
            if abilities.reads_reference and prepared.reference.text:
                arguments["ref_text"] = prepared.reference.text
        if abilities.streams:
            arguments |= {"stream": True, "streaming_interval": _INTERVAL}
        return arguments


_KEPT_VOICES = 32


class KokoroSpeaker:
    """Speaks with a model of mlx-audio's `kokoro`."""

    def __init__(self, model: Any, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._voices = list_voices(folder)
        self._pipelines: dict[str, Any] = {}

    @property
    def sample_rate(self) -> int:
        return int(self._model.sample_rate)

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        """Yield the whole piece; in several chunks if it has too many phonemes for the model."""
        language = prepared.language or "a"
        voice = prepared.voice or kokoro_voice(language, self._voices)
        pipeline = self._pipeline(language)
        if len(pipeline.voices) > _KEPT_VOICES:
            pipeline.voices.clear()
        for result in pipeline(piece, voice=voice, speed=prepared.speed, split_pattern=None):
            if result.audio is not None:
                yield Spoken(as_samples(result.audio), len(result.phonemes))

    def _pipeline(self, language: str) -> Any:
        from mlx_audio.tts.models.kokoro.pipeline import KokoroPipeline

        if language not in self._pipelines:
            try:
                pipeline = KokoroPipeline(
                    language, model=self._model, repo_id=str(self._folder), model_path=self._folder
                )
            except ImportError as error:
                cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
                raise ProblemError(library_missing(self._folder.name, cause.name or "misaki")) from error
            self._pipelines[language] = pipeline
        return self._pipelines[language]


_GROUP = 4  # Frames per evaluation: each evaluation costs a tenth of a small model's frame

_KEPT_VOICE_STATES = 16
"""Number of cached voice states, some megabytes each; the library computes them anew for every text."""


class PocketSpeaker:
    """Speaks with a model of mlx-audio's `pocket_tts`, which keeps its decoder's state on itself."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._voices: OrderedDict[str, list[tuple[Any, Any, int]]] = OrderedDict()

    @property
    def sample_rate(self) -> int:
        return int(self._model.sample_rate)

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        """Yield the first frame, then groups of frames, each while the next one is being computed."""
        state = self._voice_state(prepared.voice, prepared.reference)
        prompt_tokens = int(self._model.flow_lm.conditioner.prepare(piece).tokens.shape[1])
        groups = self._groups(self._model.generate_audio_stream(state, piece))
        for frame, count in itertools.islice(groups, 1):
            yield Spoken(as_samples(frame), prompt_tokens, count)
        before: tuple[Any, int] | None = None
        for group, count in groups:
            if before is not None:
                yield Spoken(as_samples(before[0]), tokens=before[1])
            before = group, count
        if before is not None:
            yield Spoken(as_samples(before[0]), tokens=before[1])

    def _groups(self, frames: Iterator[Any]) -> Iterator[tuple[Any, int]]:
        """Yield arrays whose evaluation has been launched, with their number of frames."""
        size = 1
        while group := list(itertools.islice(frames, size)):
            samples = mx.concatenate(group)
            mx.async_eval(samples)
            yield samples, len(group)
            size = _GROUP

    def _voice_state(self, voice: str | None, reference: Reference | None) -> dict[str, Any]:
        """Return the model's state after the voice prompt; the caller may modify it."""
        key = reference.digest if reference is not None else f"voice {voice}"
        if key not in self._voices:
            state = self._model.get_state_for_audio_prompt(self._audio_prompt(voice, reference))
            self._voices[key] = [(cache.keys, cache.values, cache.offset) for cache in state["flow_cache"]]
            mx.eval([part for part in self._voices[key] if part[0] is not None])
            while len(self._voices) > _KEPT_VOICE_STATES:
                self._voices.popitem(last=False)
        self._voices.move_to_end(key)
        state = self._model.init_state()
        for cache, (keys, values, offset) in zip(state["flow_cache"], self._voices[key], strict=True):
            # Sharing is safe: the library replaces these arrays and never writes into them.
            cache.keys, cache.values, cache.offset = keys, values, offset
        return dict(state)

    def _audio_prompt(self, voice: str | None, reference: Reference | None) -> Any:
        if reference is not None:
            return mx.array(resample(reference.samples, REFERENCE_RATE, self.sample_rate))
        return self._model._resolve_audio_prompt(voice, None, False)


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Return samples at another rate. `rate`: sample rate of `samples` in Hz; `wanted`: target sample rate in
    Hz.
    """
    if rate == wanted:
        return samples
    from mlx_audio.resample import resample_audio_array

    resampled: Samples = resample_audio_array(samples, rate, wanted).astype("float32")
    return resampled


@attrs.frozen(eq=False)
class Spoken:
    """A chunk of speech. `prompt_tokens`: number of prompt tokens read for it, beyond those of earlier
    chunks; `tokens`: number of tokens generated, if the model generates one by one.
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
        """Yield the audio of a piece of text, computed on demand. Raises ProblemError: the piece cannot be
        spoken with these options.
        """


def as_samples(audio: Any) -> Samples:
    """Return a library's mono audio as a NumPy array, which is not bound to a thread."""
    array = np.array(audio, dtype=np.float32)
    return array.reshape(-1)
