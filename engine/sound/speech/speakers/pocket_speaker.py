"""The speaker for Pocket TTS, which generates frame by frame from a cached voice state."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from greenroom.engine.sound.speech.preparing.prepared_speech import REFERENCE_RATE, PreparedSpeech, Reference
from greenroom.engine.sound.speech.speakers.resample import resample
from greenroom.engine.sound.speech.speakers.speaker import Spoken, as_samples

_GROUP = 4
"""Frames per evaluation: each evaluation costs a tenth of a small model's frame."""

_KEPT_VOICES = 16
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
            while len(self._voices) > _KEPT_VOICES:
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
