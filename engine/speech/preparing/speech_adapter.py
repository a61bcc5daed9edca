"""From a request for speech to what a model computes with; needs no weights."""

from __future__ import annotations

import re

import attrs

from greenroom.engine.slices import Slices, run_slices
from greenroom.engine.speech.preparing.abilities import SpeechAbilities
from greenroom.engine.speech.preparing.kokoro_languages import kokoro_language
from greenroom.engine.speech.preparing.prepared_speech import PreparedSpeech, Reference
from greenroom.engine.speech.preparing.reference_audio import read_reference
from greenroom.engine.speech.preparing.sentences import cut_into_pieces
from greenroom.schemas.kinds import wrong_kind
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.requests import InferenceRequest, SpeechInput

MAX_CHARACTERS = 16_384
"""Of a text, four times what OpenAI takes: about twenty minutes of speech, which lie in memory (58 MB) where
the client does not read them."""

MAX_INSTRUCTIONS = 4_096
SPEEDS = (0.25, 4.0)

DEFAULT_VOICE = "default"
"""Asks for the model's own choice, as leaving the voice out does: official clients always send one."""

_MAX_MIXED = 4
_MAX_NAME = 64
_NAME = re.compile(r"[\w][\w \-]*")


class SpeechAdapter:
    """Prepares the requests of one model.

    Args:
        model: Its id, for errors.
    """

    def __init__(self, model: str, abilities: SpeechAbilities) -> None:
        self._model = model
        self._abilities = abilities

    def prepare_input(self, request: InferenceRequest) -> PreparedSpeech:
        """Do what `prepare_slices` does, without a pause.

        Raises:
            ProblemError: 400 that names the field; 501: a library for the text's language is missing.
        """
        return run_slices(self.prepare_slices(request))

    def prepare_slices(self, request: InferenceRequest) -> Slices[PreparedSpeech]:
        """Check what a request asks for against what the model can do, and cut its text.

        Others may go on while a recording of the voice is decoded.

        Raises:
            ProblemError: 400 that names the field; 501: a library for the text's language is missing.
        """
        speech = request.input
        if not isinstance(speech, SpeechInput):
            raise ProblemError(wrong_kind(self._model, "speech", speech))
        pieces = self._pieces(speech.text)
        low, high = SPEEDS
        if not low <= speech.speed <= high:
            raise invalid(f"`speed` is {speech.speed:g}, but must be from {low} to {high:g}.", "speed")
        own = self._abilities.own_speed
        voice = self._voice(speech)
        prepared = PreparedSpeech(
            pieces,
            voice=voice,
            speed=speech.speed if own else 1.0,
            tempo=1.0 if own else speech.speed,
            instructions=self._instructions(speech.instructions),
            language=self._language(speech.language, voice),
        )
        return attrs.evolve(prepared, reference=(yield from self._reference(speech, request.client)))

    def _pieces(self, text: str) -> tuple[str, ...]:
        if len(text) > MAX_CHARACTERS:
            detail = f"`input` has {len(text)} characters, but at most {MAX_CHARACTERS} are spoken at once."
            raise invalid(detail, "input")
        if not any(character.isalnum() for character in text):
            raise invalid("`input` has no word in it that could be spoken.", "input")
        pieces = (piece for piece in cut_into_pieces(text) if any(letter.isalnum() for letter in piece))
        return tuple(pieces)

    def _voice(self, speech: SpeechInput) -> str | None:
        voice, abilities = speech.voice, self._abilities
        if voice is None or (voice in ("", DEFAULT_VOICE) and voice not in abilities.voices):
            if abilities.listed_voices and not abilities.voices and speech.reference is None:
                raise invalid(f"'{self._model}' cannot speak: {self._known()}.", "voice")
            return None
        if not abilities.takes_voice:
            detail = f"'{self._model}' has no voices: leave `voice` out, or send '{DEFAULT_VOICE}'."
            raise invalid(detail, "voice")
        if not abilities.listed_voices:
            return _checked_name(voice, "voice")
        names = voice.split(",") if abilities.architecture == "kokoro" else [voice]
        by_lower = {name.lower(): name for name in abilities.voices}
        found = [by_lower.get(name.strip().lower()) for name in names[: _MAX_MIXED + 1]]
        if None in found or len(names) > _MAX_MIXED:
            raise invalid(f"'{self._model}' has no voice {voice!r:.80}; {self._known()}.", "voice")
        return ",".join(filter(None, found))

    def _known(self) -> str:
        voices = self._abilities.voices
        if not voices:
            return "there are no files of voices in its folder"
        more = f" and {len(voices) - 60} more" if len(voices) > 60 else ""
        return f"it has {', '.join(voices[:60])}{more}"

    def _instructions(self, instructions: str) -> str:
        if not instructions.strip():
            return ""
        if self._abilities.instructions is None:
            detail = f"'{self._model}' cannot be told how to speak: leave `instructions` out."
            raise invalid(detail, "instructions", "unsupported_parameter")
        if len(instructions) > MAX_INSTRUCTIONS:
            detail = (
                f"`instructions` has {len(instructions)} characters, but at most {MAX_INSTRUCTIONS} are read."
            )
            raise invalid(detail, "instructions")
        return instructions

    def _language(self, language: str | None, voice: str | None) -> str | None:
        if self._abilities.architecture == "kokoro":
            return kokoro_language(self._model, language, voice or "")
        if language is None:
            return None
        if self._abilities.language is None:
            detail = f"'{self._model}' cannot be told a language: leave `language` out."
            raise invalid(detail, "language", "unsupported_parameter")
        return _checked_name(language, "language")

    def _reference(self, speech: SpeechInput, client: str) -> Slices[Reference | None]:
        if speech.reference is None:
            if speech.reference_text:
                raise invalid("`ref_text` says what is said in `ref_audio`, which is missing.", "ref_text")
            return None
        if not self._abilities.clones:
            detail = f"'{self._model}' cannot imitate a voice: leave `ref_audio` out."
            raise invalid(detail, "ref_audio", "unsupported_parameter")
        if speech.voice not in (None, "", DEFAULT_VOICE):
            raise invalid("`voice` and `ref_audio` both name a voice: send one of them.", "ref_audio")
        text = speech.reference_text or ""
        if len(text) > MAX_INSTRUCTIONS:
            raise invalid(f"`ref_text` has more than {MAX_INSTRUCTIONS} characters.", "ref_text")
        return Reference((yield from read_reference(speech.reference, client)), text)


def _checked_name(name: str, param: str) -> str:
    """Return a name that a library gets as it is: never a path or an address."""
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise invalid(f"`{param}` is no name: letters, digits, '-', '_' and spaces.", param)
    return name
