"""The adapter of a speech model: checks requests and splits their text; needs no weights."""

from __future__ import annotations

from pathlib import Path

import attrs

from greenroom.engine.fairness.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.media.audio.decoding import decode_recording
from greenroom.engine.sound.speech.preparing.abilities import SpeechAbilities
from greenroom.engine.sound.speech.preparing.kokoro_languages import kokoro_language
from greenroom.engine.sound.speech.preparing.prepared_speech import (
    REFERENCE_RATE,
    PreparedSpeech,
    Reference,
    Samples,
)
from greenroom.engine.sound.speech.preparing.sentences import cut_into_pieces
from greenroom.engine.sound.speech.preparing.voice_choice import (
    DEFAULT_VOICE,
    checked_name,
    choose_voice,
    leaves_choice,
)
from greenroom.schemas.messages.requests import InferenceRequest, SpeechInput
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import ProblemError, invalid

_REFERENCE = "ref_audio"

_LONGEST_SECONDS = 60
"""Longest accepted recording in seconds; models use ten or twenty."""
_SHORTEST_SECONDS = 0.5

MAX_CHARACTERS = 16_384
"""Limit of characters per request, four times OpenAI's: about twenty minutes of speech, which take 58 MB of
memory if the client does not read them.
"""

MAX_INSTRUCTIONS = 4_096
SPEEDS = (0.25, 4.0)


class SpeechAdapter:
    """Prepares the requests of one model.

    Args:
        model: The model's id, for errors.
        abilities: The options that the model supports.
    """

    def __init__(self, model: str, abilities: SpeechAbilities) -> None:
        self._model = model
        self._abilities = abilities

    def prepare_input(self, request: InferenceRequest) -> PreparedSpeech:
        """Run `prepare_in_steps` to its end.

        Raises:
            ProblemError: 400 that names the field; 501: a library for the text's language is missing.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedSpeech]:
        """Check a request against the model's options, and split its text.

        Yields while a reference recording is decoded.

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
        voice = choose_voice(
            self._model,
            self._abilities,
            speech.voice,
            imitates=speech.reference is not None,
            request_id=request.id,
        )
        prepared = PreparedSpeech(
            pieces,
            voice=voice,
            speed=speech.speed if own else 1.0,
            tempo=1.0 if own else speech.speed,
            instructions=self._instructions(speech.instructions),
            language=self._language(speech.language, voice),
        )
        return attrs.evolve(prepared, reference=(yield from self._reference(speech, request)))

    def _pieces(self, text: str) -> tuple[str, ...]:
        if len(text) > MAX_CHARACTERS:
            detail = f"`input` has {len(text)} characters, but at most {MAX_CHARACTERS} are spoken at once."
            raise invalid(detail, "input")
        if not any(character.isalnum() for character in text):
            raise invalid("`input` has no word in it that could be spoken.", "input")
        pieces = (piece for piece in cut_into_pieces(text) if any(letter.isalnum() for letter in piece))
        return tuple(pieces)

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
        return checked_name(language, "language")

    def _reference(
        self, speech: SpeechInput, request: InferenceRequest
    ) -> PreparationSteps[Reference | None]:
        if speech.reference is None:
            if speech.reference_text:
                raise invalid("`ref_text` is the transcript of `ref_audio`, which is missing.", "ref_text")
            return None
        if not self._abilities.clones:
            detail = f"'{self._model}' cannot imitate a voice: leave `ref_audio` out."
            raise invalid(detail, "ref_audio", "unsupported_parameter")
        if speech.voice != DEFAULT_VOICE and not leaves_choice(speech.voice, self._abilities):
            raise invalid("`voice` and `ref_audio` both name a voice: send one of them.", "ref_audio")
        text = speech.reference_text or ""
        if len(text) > MAX_INSTRUCTIONS:
            raise invalid(f"`ref_text` has more than {MAX_INSTRUCTIONS} characters.", "ref_text")
        samples = yield from read_reference(speech.reference, request.client)
        return Reference(samples, text, request.cache_salt)


def read_reference(path: str, client: str = "") -> PreparationSteps[Samples]:
    """Return the samples of an uploaded file, at `REFERENCE_RATE`; yields while it decodes.

    Raises:
        ProblemError: 400: it is not audio, or is too long or too short; 503: too many decoders hang.
    """
    most = _LONGEST_SECONDS * REFERENCE_RATE
    samples = (yield from decode_recording(Path(path), REFERENCE_RATE, most + 1, _REFERENCE, client)).samples
    if len(samples) > most:
        raise invalid(f"`{_REFERENCE}` is longer than {_LONGEST_SECONDS} seconds.", _REFERENCE)
    if len(samples) < _SHORTEST_SECONDS * REFERENCE_RATE:
        raise invalid(f"`{_REFERENCE}` is shorter than {_SHORTEST_SECONDS:g} seconds.", _REFERENCE)
    return samples
