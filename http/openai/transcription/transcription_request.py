"""Parsing of transcription and translation forms into a protocol-independent request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.guard.form_reader import Form
from greenroom.http.media.audio.transcript import Task
from greenroom.schemas.messages.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.openai.transcriptions import TranscriptionRequest
from greenroom.schemas.problems import invalid, missing

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
GRANULARITIES = ("word", "segment")
_MAX_LANGUAGE = 40
_UNSUPPORTED = {
    "include": "log-probabilities of a transcript's tokens are not given",
    "known_speaker_names": "speakers are not told apart",
    "known_speaker_references": "speakers are not told apart",
    "languages": "name one `language`, or none to have it detected",
    "keywords": "put words that are to be recognized into `prompt`",
}
"""Official fields that are refused -> reason."""


def parse_transcription_form(form: Form) -> TranscriptionRequest:
    """Return the fields of a form; unknown ones are ignored.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    fields = _by_name(form.fields)
    if form.file is None:
        raise missing("file")
    if not form.file.size:
        raise invalid("`file` is empty.", "file")
    for name, why in _UNSUPPORTED.items():
        if any(fields.get(name, ())):
            raise invalid(f"`{name}` is not supported: {why}.", name)
    _check_chunking(fields)
    return _checked(
        TranscriptionRequest(
            _one(fields, "model") or _missing_model(),
            _one(fields, "language") or None,
            _one(fields, "prompt") or "",
            _choice(_one(fields, "response_format") or "json", "response_format", FORMATS),
            _temperature(_one(fields, "temperature")),
            tuple(
                _choice(value, "timestamp_granularities[]", GRANULARITIES)
                for value in fields.get("timestamp_granularities", ())
            ),
            _boolean(_one(fields, "stream"), "stream"),
        )
    )


def transcription_request(
    wire: TranscriptionRequest, file: str, task: Task, request_id: str, client: str
) -> InferenceRequest:
    """Return the protocol-independent request.

    Args:
        file: Path of the recording.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 if the model's name is invalid.
    """
    asked = TranscriptionInput(
        file,
        task,
        wire.language,
        wire.prompt,
        wire.wants_words,
        # OpenAI documents 0 as automatic: the temperature rises where a window fails.
        wire.temperature or None,
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), asked, client=client)


def _checked(wire: TranscriptionRequest) -> TranscriptionRequest:
    if wire.timestamp_granularities and wire.response_format != "verbose_json":
        detail = "`timestamp_granularities[]` needs `response_format` to be 'verbose_json'."
        raise invalid(detail, "timestamp_granularities[]")
    if wire.stream and wire.response_format in ("srt", "vtt"):
        detail = "With `stream`, `response_format` must be 'json', 'text' or 'verbose_json'."
        raise invalid(detail, "response_format")
    if wire.language is not None and len(wire.language) > _MAX_LANGUAGE:
        raise invalid("`language` must be a code of ISO 639-1, such as 'en'.", "language")
    return wire


def _by_name(fields: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group values by field name; clients write repeated fields with or without brackets."""
    found: dict[str, list[str]] = {}
    for name, value in fields:
        found.setdefault(name.removesuffix("[]"), []).append(value)
    return found


def _one(fields: dict[str, list[str]], name: str) -> str | None:
    values = fields.get(name, [])
    if len(values) > 1:
        raise invalid(f"`{name}` is sent {len(values)} times: send it once.", name)
    return values[0] if values else None


def _missing_model() -> str:
    raise missing("model")


def _choice(value: str, field: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, choices))}.", field)
    return value


def _boolean(value: str | None, field: str) -> bool:
    if value is None:
        return False
    known = {"true": True, "1": True, "false": False, "0": False, "": False}
    if value.lower() not in known:
        raise invalid(f"`{field}` must be 'true' or 'false'.", field)
    return known[value.lower()]


def _temperature(value: str | None) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise invalid("`temperature` must be a number from 0 to 1.", "temperature")
    return number


def _check_chunking(fields: dict[str, list[str]]) -> None:
    """Accept `chunking_strategy` only if it asks for cuts in silence, which always happens anyway.

    Raises:
        ProblemError: 400 for anything else.
    """
    wanted = _one(fields, "chunking_strategy")
    kind = _one(fields, "chunking_strategy[type]")
    if wanted not in (None, "", "auto"):
        try:
            document = json.loads(str(wanted)[:4096])
        except (ValueError, RecursionError):  # deeply nested brackets
            document = None
        kind = document.get("type") if isinstance(document, dict) else "?"
    if kind not in (None, "server_vad"):
        detail = "`chunking_strategy` must be 'auto', or an object whose `type` is 'server_vad'."
        raise invalid(detail, "chunking_strategy")
