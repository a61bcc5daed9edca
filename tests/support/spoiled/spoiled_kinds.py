"""Valid and spoiled requests to models that do not generate text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import attrs

from greenroom.tests.support.hostile import documents, pictures, sounds
from greenroom.tests.support.hostile.uploads import form
from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder
from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket
from greenroom.tests.support.models.tiny_vision_models import make_tiny_vision_model
from greenroom.tests.support.models.tiny_whisper import make_tiny_whisper
from greenroom.tests.support.spoiled.spoiled_bodies import OPTIONS, Json, count, spoil

PNG = base64.b64encode(pictures.photo(32, 32, "PNG")).decode()
PDF = base64.b64encode(documents.document(2)).decode()

MAKERS: Mapping[str, Callable[[Path], object]] = {
    "sees": lambda folder: _make_model_that_sees(folder),
    "embeds": lambda folder: make_tiny_encoder("bert", folder),
    "ranks": lambda folder: make_tiny_encoder("bert-rerank", folder),
    "speaks": make_tiny_pocket,
    "hears": lambda folder: make_tiny_whisper(folder, multilingual=True),
}
"""Functions that make tiny models, by model type."""

_DATA_URL = f"data:image/png;base64,{PNG}"
_IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
_DOCUMENT: Json = {
    "type": "document",
    "title": "T",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
}
_ASKED: Json = {"type": "text", "text": "What is this?"}
BODIES: Mapping[str, tuple[tuple[str, Json], ...]] = {
    "sees": (
        (
            "/v1/chat/completions",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": _DATA_URL, "detail": "low"}},
                            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
                            _ASKED,
                        ],
                    },
                    {"role": "assistant", "content": "A circle."},
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": _DATA_URL}}]},
                ],
                "max_tokens": 4,
            },
        ),
        (
            "/v1/responses",
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_text", "text": "What is this?"},
                            {"type": "input_image", "image_url": _DATA_URL, "detail": "auto"},
                        ],
                    }
                ],
                "max_output_tokens": 4,
                "store": False,
            },
        ),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [_IMAGE, _DOCUMENT, _ASKED]}], "max_tokens": 4},
        ),
        (
            "/api/chat",
            {"messages": [{"role": "user", "content": "What?", "images": [PNG, PNG]}], "options": OPTIONS},
        ),
        ("/api/generate", {"prompt": "What?", "images": [PNG], "options": OPTIONS}),
    ),
    "embeds": (
        (
            "/v1/embeddings",
            {"input": ["Hello", "there"], "encoding_format": "float", "dimensions": 8, "user": "u"},
        ),
        ("/v1/embeddings", {"input": [[7, 8, 9], [10]], "encoding_format": "base64"}),
        ("/api/embed", {"input": ["Hello"], "truncate": True, "options": {}, "keep_alive": "5m"}),
        ("/api/embeddings", {"prompt": "Hello"}),
    ),
    "ranks": (
        (
            "/v1/rerank",
            {"query": "sea", "documents": ["Hello", {"text": "there"}], "top_n": 1, "return_documents": True},
        ),
        ("/v2/rerank", {"query": "sea", "documents": ["Hello", "there"], "max_tokens_per_doc": 32}),
        ("/v1/score", {"text_1": "sea", "text_2": ["Hello", "there"]}),
    ),
    "speaks": (
        (
            "/v1/audio/speech",
            {
                "input": "Hello there.",
                "voice": "default",
                "response_format": "wav",
                "speed": 1.0,
                "instructions": "",
                "stream_format": "audio",
            },
        ),
        ("/v1/audio/speech", {"input": "Hi.", "response_format": "pcm", "stream_format": "sse"}),
    ),
}
"""Valid requests by model type; each is answered with 200."""

FORMS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "/v1/audio/transcriptions",
        {
            "language": "en",
            "prompt": "Hello",
            "response_format": "verbose_json",
            "temperature": "0",
            "timestamp_granularities[]": "segment",
        },
    ),
    ("/v1/audio/transcriptions", {"response_format": "vtt"}),
    ("/v1/audio/transcriptions", {"stream": "true", "response_format": "json"}),
    ("/v1/audio/translations", {"response_format": "json", "prompt": ""}),
)
"""Form fields of valid transcription requests, besides model and file."""

_ODD_VALUES = ("", "0", "-1", "nan", "1e999", "true", "xx", "a" * 3_000, "🦊", "[]", "null", "word", "srt")


@attrs.frozen
class KindRequest:
    """A raw request."""

    path: str
    content_type: str
    body: bytes


def right_requests(kind: str) -> list[KindRequest]:
    """Return valid requests, to be answered with 200."""
    if kind == "hears":
        return [form_request(path, {"model": kind, **fields}, sounds.tone(0.2)) for path, fields in FORMS]
    return [json_request(path, {"model": kind, **body}) for path, body in BODIES[kind]]


def spoiled_kind_request(random: Random, kind: str) -> KindRequest:
    """Return a request in which one value is spoiled on average."""
    if kind != "hears":
        path, right = random.choice(BODIES[kind])
        body = {"model": kind, **right}
        return json_request(path, spoil(body, random, 1.0 / count(body)))
    path, fields = random.choice(FORMS)
    values = {name: value for name, value in {"model": kind, **fields}.items() if random.random() > 0.1}
    values = {
        name: random.choice(_ODD_VALUES) if random.random() < 0.2 else of for name, of in values.items()
    }
    file = sounds.tone(0.2) if random.random() < 0.8 else random.choice([*sounds.REFUSED.values()])()
    return form_request(path, values, file)


def _make_model_that_sees(folder: Path) -> None:
    """Make a vision model limited to 100 patches per image: a full page would take a minute on a CPU."""
    make_tiny_vision_model("qwen3_vl", folder)
    file = folder / "preprocessor_config.json"
    config = json.loads(file.read_text())
    most = config["size"]["shortest_edge"] * 100
    config |= {"max_pixels": most, "size": {**config["size"], "longest_edge": most}}
    file.write_text(json.dumps(config))


def json_request(path: str, body: Any) -> KindRequest:
    """Return a request with a JSON body."""
    return KindRequest(path, "application/json", json.dumps(body).encode())


def form_request(path: str, fields: Mapping[str, str], file: bytes) -> KindRequest:
    """Return a request with a multipart form that has a file."""
    upload = form(file, **fields)
    return KindRequest(path, upload.headers["content-type"], upload.whole())
