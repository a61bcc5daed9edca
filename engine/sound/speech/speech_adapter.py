"""The adapter of a speech model: checks requests and splits their text; needs no weights."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

from greenroom.engine.media.recording_windows import decode_recording
from greenroom.engine.resources.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.sound.speech.abilities import SpeechAbilities, kokoro_language
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import SingleAnswerInput
from greenroom.schemas.messages.requests import InferenceRequest, SpeechInput
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import ProblemError, invalid

_REFERENCE = "ref_audio"

_LONGEST_SECONDS = 60  # Longest accepted recording in seconds; models use ten or twenty
_SHORTEST_SECONDS = 0.5

MAX_CHARACTERS = 16_384
"""Limit of characters per request, four times OpenAI's: about twenty minutes of speech, which take 58 MB of
memory if the client does not read them.
"""

MAX_INSTRUCTIONS = 4_096
SPEEDS = (0.25, 4.0)


class SpeechAdapter:
    """Prepares the requests of one model."""

    def __init__(self, model: str, abilities: SpeechAbilities) -> None:
        self._model = model
        self._abilities = abilities

    def prepare_input(self, request: InferenceRequest) -> PreparedSpeech:
        """Run `prepare_in_steps` to its end. Raises ProblemError: 400 that names the field; 501: a library
        for the text's language is missing.
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
    """Return the samples of an uploaded file, at `REFERENCE_RATE`; yields while it decodes. Raises
    ProblemError (400): it is not audio, or is too long or too short; 503: too many decoders hang.
    """
    most = _LONGEST_SECONDS * REFERENCE_RATE
    samples = (yield from decode_recording(Path(path), REFERENCE_RATE, most + 1, _REFERENCE, client)).samples
    if len(samples) > most:
        raise invalid(f"`{_REFERENCE}` is longer than {_LONGEST_SECONDS} seconds.", _REFERENCE)
    if len(samples) < _SHORTEST_SECONDS * REFERENCE_RATE:
        raise invalid(f"`{_REFERENCE}` is shorter than {_SHORTEST_SECONDS:g} seconds.", _REFERENCE)
    return samples


Samples = npt.NDArray[np.float32]
"""Mono samples from -1 to 1, `[samples]`."""

REFERENCE_RATE = 24_000
"""Sample rate of reference audio in Hz; it is resampled later for models with another rate."""


@attrs.frozen(eq=False)
class Reference:
    """A recording whose voice is cloned.

    Args:
        samples: Samples at `REFERENCE_RATE`.
        text: Transcript of the recording; empty if not known.
        cache_salt: Name of those who share what is computed of it; empty for all.
    """

    samples: Samples = attrs.field(repr=False)
    text: str = ""
    cache_salt: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the samples and the salt, by which what is computed of the recording is found."""
        return hashlib.sha256(self.cache_salt.encode() + self.samples.tobytes()).hexdigest()


@attrs.frozen
class PreparedSpeech(SingleAnswerInput):
    """The text and options of a speech request.

    Args:
        pieces: Pieces of the text, in order; none is empty.
        voice: Name of a voice of the model; None for the model's default.
        tempo: Factor by which the audio is sped up afterwards.
        instructions: Speaking instructions; empty if there are none.
        language: The model's name of the language; None for the model's default.
        reference: Recording whose voice is cloned, or None.
    """

    pieces: tuple[str, ...]
    voice: str | None = None
    speed: float = 1.0
    tempo: float = 1.0
    instructions: str = ""
    language: str | None = None
    reference: Reference | None = None


log = get_logger(__name__)

DEFAULT_VOICE = "default"  # Name that requests the model's default voice, like an absent `voice`

OPENAI_VOICES = frozenset(
    "alloy ash ballad cedar coral echo fable marin nova onyx sage shimmer verse".split()  # noqa: SIM905
)
"""Names that also request the default voice: official clients must send a voice, and examples use these."""

_MAX_MIXED = 4
_MAX_NAME = 64
_NAME = re.compile(r"[\w][\w \-]*")


def leaves_choice(voice: str | None, abilities: SpeechAbilities) -> bool:
    """Return whether a voice name stands for the model's default."""
    if not voice:
        return True
    name = voice.lower()
    is_anybody = name == DEFAULT_VOICE or name in OPENAI_VOICES
    return is_anybody and name not in {known.lower() for known in abilities.voices}


def choose_voice(
    model: str, abilities: SpeechAbilities, voice: str | None, *, imitates: bool, request_id: str = ""
) -> str | None:
    """Return the voice to pass to the library; None for the model's default. `imitates`: True if the request
    clones the voice of a recording. Raises ProblemError (400): the model has no such voice.
    """
    if leaves_choice(voice, abilities):
        if abilities.listed_voices and not abilities.voices and not imitates:
            raise invalid(f"'{model}' cannot speak: {_known(abilities)}.", "voice")
        if voice and voice.lower() != DEFAULT_VOICE:
            log.info("voice left to the model", model=model, voice=voice, request_id=request_id)
        return None
    assert voice is not None
    if not abilities.takes_voice:
        detail = f"'{model}' has no voices: leave `voice` out, or send '{DEFAULT_VOICE}'."
        raise invalid(detail, "voice")
    if not abilities.listed_voices:
        return checked_name(voice, "voice")
    names = voice.split(",") if abilities.architecture == "kokoro" else [voice]
    by_lower = {name.lower(): name for name in abilities.voices}
    found = [by_lower.get(name.strip().lower()) for name in names[: _MAX_MIXED + 1]]
    if None in found or len(names) > _MAX_MIXED:
        raise invalid(f"'{model}' has no voice {voice!r:.80}; {_known(abilities)}.", "voice")
    return ",".join(filter(None, found))


def checked_name(name: str, param: str) -> str:
    """Return a name that is safe to pass to a library: never a path or an address. Raises ProblemError: 400
    that names the field.
    """
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise invalid(f"`{param}` is no valid name: use letters, digits, '-', '_' and spaces.", param)
    return name


def _known(abilities: SpeechAbilities) -> str:
    voices = abilities.voices
    if not voices:
        return "there are no files of voices in its folder"
    more = f" and {len(voices) - 60} more" if len(voices) > 60 else ""
    return f"it has {', '.join(voices[:60])}{more}"


LONGEST = 240
"""Largest weight of a piece, in English letters. Models that read a piece as a whole rush longer ones, and
take seconds before the first audio.
"""

SHORTEST = 60  # Weight below which a sentence is joined with the next one: alone it would sound clipped

_END = re.compile(
    r"(?<=[.!?…])[\"'”’)\]»]*\s+"  # sentences in scripts that part words  # noqa: RUF001
    r"|(?<=[。！？｡])[」』”’）]*\s*"  # noqa: RUF001
    r"|(?<!\s)\s*\n\s*"  # from the first white space on: further tries would take quadratic time
)
_CLAUSE = re.compile(r"(?<=[,;:–—])\s+|(?<=[，；：、])")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_INITIAL = re.compile(r"(?:^|\s)(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|vs|No|e\.g|i\.e)\.$")
"""Abbreviations whose full stop ends no sentence, matched at the end of the text before a cut."""


def cut_into_pieces(text: str) -> tuple[str, ...]:
    """Return a text's pieces, none empty, none heavier than `LONGEST`.

    The first piece is the first sentence alone, whatever its length, so that audio starts early.
    """
    pieces: list[str] = []
    for sentence in _sentences(text):
        for part in _fitting(sentence):
            mergeable = len(pieces) > 1 and weigh(pieces[-1]) < SHORTEST
            if mergeable and weigh(pieces[-1]) + weigh(part) <= LONGEST:
                pieces[-1] = f"{pieces[-1]} {part}"
            else:
                pieces.append(part)
    return tuple(pieces)


def weigh(text: str) -> int:
    """Return the approximate spoken length in letters; ideographs and digits count as several."""
    return sum(map(_weight, text))


def _weight(character: str) -> int:
    if character.isdigit():
        return 4
    return 3 if unicodedata.east_asian_width(character) in "WF" else 1


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if _INITIAL.search(text[max(start, end.start() - 6) : end.start()]) and "\n" not in end.group():
            continue
        if sentence := text[start : end.end()].strip():
            yield _SPACE.sub(" ", sentence)
        start = end.end()
    if rest := text[start:].strip():
        yield _SPACE.sub(" ", rest)


def _fitting(sentence: str) -> Iterator[str]:
    if weigh(sentence) <= LONGEST:
        yield sentence
        return
    for pattern in (_CLAUSE, _SPACE):
        parts = [part for part in pattern.split(sentence) if part]
        if len(parts) > 1:
            for joined in _join(parts):
                yield from _fitting(joined)
            return
    yield from _letters(sentence)


def _join(parts: list[str]) -> Iterator[str]:
    joined, weight = "", 0
    for part in parts:
        added = weigh(part) + 1
        if joined and weight + added > LONGEST:
            yield joined
            joined, weight = "", 0
        joined = f"{joined} {part}" if joined else part
        weight += added
    yield joined


def _letters(word: str) -> Iterator[str]:
    part, weight = "", 0
    for character in word:
        if weight + _weight(character) > LONGEST:
            yield part
            part, weight = "", 0
        part += character
        weight += _weight(character)
    yield part
