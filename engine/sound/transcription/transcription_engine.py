"""The transcription engine: recordings take fair turns by steps of their windows, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.catalog.model_files import read_optional
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import import_model_code, named_load_errors, offline
from greenroom.engine.loading.read_weights import cast_weights, read_weights, recorded_files, weight_bytes
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.media.recording_windows import AHEAD_SECONDS, RecordingReader, WindowBuffer
from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.engine.resources.memory_account import Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.sound.sound_engine import SoundEngine
from greenroom.engine.sound.speech.abilities import check_speech_weights
from greenroom.engine.sound.transcription.recognizers import (
    DecodingSession,
    Recognizer,
    SinglePassRecognizer,
    WindowResult,
)
from greenroom.engine.sound.transcription.transcription_adapter import PreparedTranscription, library_name
from greenroom.engine.sound.transcription.whisper_recognizer import WhisperRecognizer
from greenroom.schemas.events.events import (
    Finished,
    FinishReason,
    InferenceEvent,
    PromptProgress,
    Timing,
    Usage,
)
from greenroom.schemas.events.result_events import Recording
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.settings.settings import Settings

Steps = Generator[list[InferenceEvent], None, None]


class RunningTranscription:
    """A recording's transcription; between two windows it can move to another recognizer.

    Args:
        ahead: Seconds of audio decoded ahead once it has started.

    Attributes:
        in_piece: True if a window is being computed.
        working_bytes: Memory of a window's computation in bytes.
    """

    def __init__(
        self, request: InferenceRequest, prepared: PreparedTranscription, recognizer: Recognizer, ahead: float
    ) -> None:
        self.request_id, self.client = request.id, request.client
        self.working_bytes = recognizer.working_bytes(prepared.asked)
        self.in_piece = False
        self._asked, self._facts = prepared.asked, prepared.facts
        self._session: DecodingSession | None = None
        self._memory: object = None
        self._rate = recognizer.rate
        self._buffer = WindowBuffer(recognizer.rate, recognizer.window_seconds)
        self._ahead = ahead
        self._reader: RecordingReader | None = None
        self._language = prepared.asked.language
        self._told: tuple[str | None] | None = None
        self._generated = 0
        self._submitted = time.perf_counter()
        self._began: float | None = None
        self._steps: Steps | None = None

    def finished(self, reason: FinishReason) -> Finished:
        now = time.perf_counter()
        began = now if self._began is None else self._began
        timing = Timing(queued=began - self._submitted, decode=now - began)
        return Finished(reason, Usage(generated=self._generated, heard=self._heard), timing)

    @property
    def is_begun(self) -> bool:
        return self._began is not None

    def advance(self, recognizer: Recognizer, clock: TimeBudget) -> list[InferenceEvent]:
        """Compute one step, and return its events; the last event is Finished. Raises ProblemError: the
        recording cannot be decoded, or too many decoders hang.
        """
        if self._began is None:
            self._began = time.perf_counter()
        if self._reader is None:
            self._reader = RecordingReader(
                Path(self._asked.file), self._rate, ahead=self._ahead, client=self.client
            )
        if self._steps is None:
            self._session = recognizer.listen(self._asked, self._memory)
            self._steps = self._run(self._session, self._reader, clock)
        clock.begin()
        return next(self._steps)

    def detach(self) -> None:
        """Detach from the recognizer between two windows; another one can continue."""
        if self._steps is not None:
            self._steps.close()
        if self._session is not None:
            self._memory = self._session.memory
        self._steps = self._session = None
        self.in_piece = False

    def close(self) -> None:
        self.detach()
        if self._reader is not None:
            self._reader.close()

    def _run(self, session: DecodingSession, reader: RecordingReader, clock: TimeBudget) -> Steps:
        while True:
            if self._told != (self._language,):
                self._told = (self._language,)
                yield [self._recording()]
            if not (yield from self._fill(reader, clock)):
                break
            window = self._buffer.next_window()
            if window is not None:
                self.in_piece = True
                hearing = session.hear(window, clock)
                heard = yield from _slices_of(hearing)
                self._buffer.advance(min(max(heard.samples, 1), len(window.samples)))
                self.in_piece = False
                told = self._tell(heard)
                if self._buffer.is_over:
                    yield [*told, *self._end()]
                    return
                yield told
        yield self._end()

    def _fill(
        self, reader: RecordingReader, clock: TimeBudget
    ) -> Generator[list[InferenceEvent], None, bool]:
        buffer = self._buffer
        while not buffer.is_ready:
            block = reader.read(clock.patience)
            if block is None:
                buffer.end()
            elif len(block):
                buffer.add(block)
            if block is not None and (not len(block) or clock.is_over):
                yield [self._progress()]
        return buffer.heard > buffer.position

    def _end(self) -> list[InferenceEvent]:
        return [attrs.evolve(self._recording(), duration=self._heard), self.finished("stop")]

    @property
    def _heard(self) -> float:
        """Seconds of audio that are transcribed."""
        return round(self._buffer.position / self._rate, 3)

    def _tell(self, heard: WindowResult) -> list[InferenceEvent]:
        self._generated += heard.generated
        self._language = heard.language
        return [*heard.segments, self._progress()]

    def _progress(self) -> PromptProgress:
        heard, total = self._buffer.position / self._rate, self._facts.duration
        seconds = 0.0 if self._began is None else time.perf_counter() - self._began
        return PromptProgress(int(heard), int(max(heard, total or 0)), seconds=seconds)

    def _recording(self) -> Recording:
        return Recording(self._facts.duration or 0.0, self._language)


def _slices_of(
    hearing: Generator[None, None, WindowResult],
) -> Generator[list[InferenceEvent], None, WindowResult]:
    while True:
        try:
            next(hearing)
        except StopIteration as end:
            result: WindowResult = end.value
            return result
        yield []


_MAX_WINDOWS = 4
"""Limit of windows in progress at once.

A later recording waits until one of them ends, and unloading the model waits until all do. With a window for
each request, both would take many times as long.
"""
_UNCROWDED = 8
_LITTLE_AHEAD_SECONDS = 4.0
"""Seconds decoded ahead for each recording beyond the first few; a second takes 64 kB."""


class TranscriptionEngine(SoundEngine[Recognizer, RunningTranscription]):
    """An engine whose step reads from a recording, or computes part of one window.

    Clients get equal shares of the steps, and so do the recordings of one client: a long one does not block
    a short one.

    Args:
        clock: Clock in seconds, of any origin.
    """

    piece = "A window of the recording"

    def __init__(
        self, recognizer: Recognizer, share: Share, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(recognizer, share, _MAX_WINDOWS, clock=clock)
        self._budget = TimeBudget(clock)

    def submit(self, request: InferenceRequest, prepared: PreparedTranscription) -> None:
        """Queue a recording; its file is opened when it first gets a turn on the model."""
        assert self._model is not None, "submitted after close"
        ahead = AHEAD_SECONDS if len(self._queue) < _UNCROWDED else _LITTLE_AHEAD_SECONDS
        self.resume(RunningTranscription(request, prepared, self._model, ahead))

    def suspend(self) -> Mapping[str, RunningTranscription] | None:
        """Remove and return all recordings once their started windows are done; None until then."""
        suspended = super().suspend()
        for running in (suspended or {}).values():
            running.detach()
        return suspended

    def _piece_bytes(self, request: RunningTranscription) -> int:
        return request.working_bytes

    def _compute(self, model: Recognizer, request: RunningTranscription) -> list[InferenceEvent]:
        self._budget.is_alone = len(self._queue) == 1
        return request.advance(model, self._budget)


_LONGEST_CONTEXT = 4_096
"""Limit on Whisper's positions; all published models have 1,500 of audio and 448 of text."""
_CONTEXTS = ("n_audio_ctx", "n_text_ctx", "max_source_positions", "max_target_positions")


def open_transcription_engine(load: ModelLoad) -> TranscriptionEngine:
    """Load a model's weights and its engine, confined to this thread. Raises ProblemError (503 `load_failed`,
    507 without memory for the weights). Raises LoadAbandonedError: it was abandoned.
    """
    with load.open_share() as (share, charge):
        use_device(load.settings)
        architecture = load.record.architecture
        with named_load_errors(load.folder):
            with recorded_files(load.is_abandoned) as files:
                model = _load_lazily(load.folder, architecture)
                if architecture == "whisper":
                    _cast(model, load.settings)
            charge(weight_bytes(model))
            read_weights(model, files, load.progress, load.is_abandoned)
            return TranscriptionEngine(_recognizer(model, architecture), share, load.clock)


def _load_lazily(folder: Path, architecture: str) -> Any:
    """Return mlx-audio's model with weights that are not evaluated yet.

    By itself, the library would guess an architecture from the folder's path, and download missing files: so
    the architecture is given, and downloads are disabled.
    """
    if any(folder.glob("model*.safetensors")):
        check_weight_files(folder)
    else:  # Mistral's own releases are named `consolidated.safetensors`.
        check_speech_weights(folder)
    if architecture == "whisper":
        _check_context(folder)
    load_model = import_model_code("mlx_audio.stt.utils").load_model
    with offline():
        model = load_model(folder, lazy=True, model_type=architecture, model_name_parts=[architecture])
    # Otherwise its graph keeps the layers' initial random weights alive.
    mx.eval(mx.random.state)
    return model


def _cast(model: Any, settings: Settings) -> None:
    """Give a Whisper model the type of the settings, instead of float16."""
    if (dtype := cast_weights(model, settings, slow=True)) is None:
        return
    model.dtype = dtype
    encoder, decoder = model.encoder, model.decoder
    encoder._positional_embedding = encoder._positional_embedding.astype(dtype)
    decoder._mask = decoder._mask.astype(dtype)


def _check_context(folder: Path) -> None:
    """Check Whisper's stated positions: building it computes a mask of their square. Raises ValueError: one
    sentence with the field and its limit.
    """
    config = read_optional(folder / "config.json")
    for field in _CONTEXTS:
        value = config.get(field)
        if isinstance(value, int) and value > _LONGEST_CONTEXT:
            raise ValueError(f"its config.json states {field} = {value:,} (at most {_LONGEST_CONTEXT:,})")


def _recognizer(model: Any, architecture: str) -> Recognizer:
    if architecture == "whisper":
        return WhisperRecognizer(model)
    return SinglePassRecognizer(model, library_name(architecture))
