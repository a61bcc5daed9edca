"""Transcription architectures of mlx-audio besides Whisper, and the arguments that each takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from greenroom.engine.catalog.kinds.libraries import library_constant

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


MOST_TOKENS = 448
"""Limit of tokens per window: as many as Whisper's for a longer one."""

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
    "voxtral": ("mistral_common", 'pip install "mistral-common[audio]"'),
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
    """Return mlx-audio's name of an architecture; some have several names."""
    remapping: Mapping[str, str] = library_constant("mlx_audio", "stt/utils.py", "MODEL_REMAPPING")
    return remapping.get(architecture, architecture)
