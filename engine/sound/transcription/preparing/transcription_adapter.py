"""The adapter of a transcription model: checks requests and opens recordings."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.missing_packages import library_missing
from greenroom.engine.fairness.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.media.audio.decoding import decode_recording
from greenroom.engine.sound.transcription.preparing.architectures import (
    NOT_SERVED,
    PACKAGES,
    SINGLE_PASS,
    library_name,
)
from greenroom.engine.sound.transcription.preparing.prepared_transcription import PreparedTranscription
from greenroom.schemas.messages.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import Problem, ProblemError, invalid

_FIRST_MULTILINGUAL = 51_865
"""Vocabulary size of Whisper's smallest multilingual models; English-only models have one token less."""
_PROBE_RATE = 16_000


class TranscriptionAdapter:
    """Prepares the requests of one model; implements `PromptAdapter`.

    Args:
        languages: The model's language codes, by name and by code; None if the library does not list them.
        translates: True if the model can translate speech to English.
    """

    def __init__(
        self, model: str, record: CapabilityRecord, languages: Mapping[str, str] | None, translates: bool
    ) -> None:
        self._model = model
        self._record = record
        self._languages = languages
        self._translates = translates

    def prepare_input(self, request: InferenceRequest) -> PreparedTranscription:
        """Run `prepare_in_steps` to its end.

        Raises:
            ProblemError: The request cannot be answered.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedTranscription]:
        """Check a request and its audio file; yields while the file is opened.

        Raises:
            ProblemError: The request cannot be answered.
        """
        asked = request.input
        if not isinstance(asked, TranscriptionInput):
            raise ProblemError(wrong_kind(self._model, self._record.model_type, asked))
        if asked.task == "translate" and not self._translates:
            detail = f"'{self._model}' does not translate; a multilingual Whisper model does."
            raise invalid(detail, "model")
        if asked.word_timestamps and self._record.architecture != "whisper":
            detail = f"'{self._model}' does not tell when each word is said."
            raise invalid(detail, "timestamp_granularities[]")
        language = None if asked.language is None else self._known_language(asked.language)
        if asked.prompt and self._record.architecture != "whisper":
            raise invalid(f"'{self._model}' takes no prompt.", "prompt")
        # Decoding the beginning rejects invalid audio before the response starts.
        beginning = yield from decode_recording(Path(asked.file), _PROBE_RATE, most=1, client=request.client)
        return PreparedTranscription(attrs.evolve(asked, language=language), beginning.facts)

    def _known_language(self, name: str) -> str:
        wanted = name.strip().lower()
        if self._languages is None:
            return wanted
        code = self._languages.get(wanted) or self._languages.get(wanted.replace("_", "-").partition("-")[0])
        if code is None:
            known = sorted({*self._languages.values()})
            listed = ", ".join(known) if len(known) < 200 else ""
            detail = f"'{self._model}' does not know the language '{name[:40]}'; it knows {listed}."
            raise invalid(detail, "language")
        return code


def make_transcription_adapter(model: str, folder: Path, record: CapabilityRecord) -> TranscriptionAdapter:
    """Return a model's adapter; needs no weights.

    Raises:
        ProblemError: 501: the architecture is not served, or a package is missing.
    """
    if record.architecture == "whisper":
        config = read_optional(folder / "config.json")
        languages = _whisper_languages(config)
        return TranscriptionAdapter(model, record, languages, translates=len({*languages.values()}) > 1)
    name = library_name(record.architecture)
    if name not in SINGLE_PASS:
        served = ", ".join(sorted({"whisper", *SINGLE_PASS}))
        why = NOT_SERVED.get(name, "its code in mlx-audio is of no form that is known here")
        detail = f"'{model}' is a '{name}' model, which is not served: {why}. These are: {served}."
        raise ProblemError(Problem(501, "unsupported_model_type", detail, "model"))
    if name in PACKAGES and importlib.util.find_spec(PACKAGES[name][0]) is None:
        raise ProblemError(library_missing(model, *PACKAGES[name]))
    return TranscriptionAdapter(model, record, None, translates=False)


def _whisper_languages(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the language codes by code and by English name."""
    size = config.get("n_vocab", config.get("vocab_size", 0))
    if not isinstance(size, int) or size < _FIRST_MULTILINGUAL:
        return {"en": "en", "english": "en"}
    library = import_model_code("mlx_audio.stt.models.whisper.tokenizer")
    codes = list(library.LANGUAGES)[: size - 51_765 - 1]
    named = {name: code for name, code in library.TO_LANGUAGE_CODE.items() if code in codes}
    return {**named, **{code: code for code in codes}}
