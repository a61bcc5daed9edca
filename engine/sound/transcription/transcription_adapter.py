"""The adapter of a transcription model: checks requests and opens recordings."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from greenroom.engine.catalog.libraries import library_constant
from greenroom.engine.catalog.load_failures import library_missing
from greenroom.engine.catalog.model_files import read_optional
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.media.recording_windows import decode_recording
from greenroom.engine.media.recordings import AudioFacts
from greenroom.engine.resources.preparation_steps import PreparationSteps, run_to_end
from greenroom.schemas.messages.prepared_input import SingleAnswerInput
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
        """Run `prepare_in_steps` to its end. Raises ProblemError: the request cannot be answered."""
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedTranscription]:
        """Check a request and its audio file; yields while the file is opened. Raises ProblemError: the
        request cannot be answered.
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
            detail = f"'{self._model}' does not know the language '{name[:40]}'; it knows {', '.join(known)}."
            raise invalid(detail, "language")
        return code


def make_transcription_adapter(model: str, folder: Path, record: CapabilityRecord) -> TranscriptionAdapter:
    """Return a model's adapter; needs no weights. Raises ProblemError (501): the architecture is not served,
    or a package is missing.
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
    size = config.get("n_vocab", config.get("vocab_size", 0))
    if not isinstance(size, int) or size < _FIRST_MULTILINGUAL:
        return {"en": "en", "english": "en"}
    library = import_model_code("mlx_audio.stt.models.whisper.tokenizer")
    codes = list(library.LANGUAGES)[: size - 51_765 - 1]
    named = {name: code for name, code in library.TO_LANGUAGE_CODE.items() if code in codes}
    return {**named, **{code: code for code in codes}}


LanguageForm = Literal["code", "name"]


@attrs.frozen
class SinglePassTraits:
    """The arguments and output of one architecture's code.

    Args:
        language: Arguments of `generate` for the spoken language, never for a translation's.
        form: Form of a language: `code` for ISO 639-1, or its English `name`.
        says_none: True if the architecture needs an explicit None to detect the language.
        bounded: True if it takes a token limit, set to `MOST_TOKENS`; its own default is too low for a window
            of fast speech, or missing.
        parts: True if its answer has timed parts, and its text is JSON instead of a transcript.
    """

    language: tuple[str, ...] = ()
    form: LanguageForm = "code"
    says_none: bool = False
    bounded: bool = False
    parts: bool = False


MOST_TOKENS = 448  # Limit of tokens per window: as many as Whisper's for a longer one

_NAMED = SinglePassTraits(("language",), "name", bounded=True)

SINGLE_PASS: Mapping[str, SinglePassTraits] = {
    "canary": SinglePassTraits(("source_lang", "target_lang"), bounded=True),
    "cohere_asr": SinglePassTraits(("language",), bounded=True),
    "fireredasr2": SinglePassTraits(),
    "fun_asr_nano": SinglePassTraits(("language",), bounded=True),
    "glmasr": SinglePassTraits(bounded=True),
    "granite_speech": SinglePassTraits(("source_language",), bounded=True),
    "higgs_audio_3": SinglePassTraits(bounded=True),
    "mega_asr": _NAMED,
    "mimo_v2_asr": SinglePassTraits(("language",), bounded=True),
    "ming_v3_asr": SinglePassTraits(("language",), bounded=True),
    "mms": SinglePassTraits(),
    "moonshine": SinglePassTraits(),
    "moss_transcribe_diarize": SinglePassTraits(bounded=True, parts=True),
    "nemotron_asr": SinglePassTraits(("language",)),
    "parakeet": SinglePassTraits(),
    "qwen3_asr": _NAMED,
    "sensevoice": SinglePassTraits(("language",)),
    "vibevoice_asr": SinglePassTraits(bounded=True, parts=True),
    "voxtral": SinglePassTraits(("language",), says_none=True, bounded=True),
    "voxtral_realtime": SinglePassTraits(bounded=True),
}
"""Architectures that map samples to text."""

PACKAGES: Mapping[str, tuple[str, str]] = {
    "voxtral": ("mistral_common", 'pip install "mistral-common[audio]"')
}
"""Modules that the library imports only during transcription, with the command that installs them."""

_CHANGES_DEVICE = "its code changes MLX's default device, for all models of the process, while it is loaded"
_UNPACKS = "mlx-audio would unpack its archive into the user's cache, and read what it finds there"

NOT_SERVED: Mapping[str, str] = {
    "granite_speech5_ctc": _CHANGES_DEVICE,
    "granite_speech_nar": _CHANGES_DEVICE,
    "lasr_ctc": "mlx-audio gives the numbers of its tokens, and no text",
    "moss_music": "it describes music, and writes down nothing that is said",
    "phonon": _UNPACKS,
    "phonon2": _UNPACKS,
    "qwen2_audio": "it answers questions about sounds; asked for nothing it describes them",
    "qwen3_forced_aligner": "it finds the times of words in a text that it is given, which no request has",
    "wav2vec": "it makes features of sounds, and no text",
}
"""Reasons why other architectures are not served."""


def library_name(architecture: str) -> str:
    remapping: Mapping[str, str] = library_constant("mlx_audio", "stt/utils.py", "MODEL_REMAPPING")
    return remapping.get(architecture, architecture)


@attrs.frozen
class PreparedTranscription(SingleAnswerInput):
    """The engine's input for one recording. `asked`: the request, with the language in the model's form."""

    asked: TranscriptionInput
    facts: AudioFacts
