"""Requests with hostile images, documents and URLs, in each protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from greenroom.tests.attack.requests import files
from greenroom.tests.attack.requests.json_pieces import Made, Repeated, Text
from greenroom.tests.attack.requests.steps import Call
from greenroom.tests.support.hostile import addresses, pictures

Part = Callable[[Any, Any], Any]
"""Function that makes an image part of a message from the image's base64 and its URL."""

COUNTS = st.sampled_from([1, 1, 1, 2, 6, 60])
"""Numbers of images in a message; the server allows five."""


def _chat(part: Any, model: str, stream: bool) -> tuple[str, Any]:
    messages = [{"role": "user", "content": part}]
    return "/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 8, "stream": stream}


def _messages(part: Any, model: str, stream: bool) -> tuple[str, Any]:
    return "/v1/messages", _chat(part, model, stream)[1]


def _response(part: Any, model: str, stream: bool) -> tuple[str, Any]:
    items = [{"role": "user", "content": part}]
    body = {"model": model, "input": items, "max_output_tokens": 8, "stream": stream, "store": False}
    return "/v1/responses", body


def _ollama(images: Any, model: str, stream: bool) -> tuple[str, Any]:
    messages = [{"role": "user", "content": "What is this?", "images": images}]
    options = {"num_predict": 8}
    return "/api/chat", {"model": model, "messages": messages, "options": options, "stream": stream}


def _generate(images: Any, model: str, stream: bool) -> tuple[str, Any]:
    options = {"num_predict": 8}
    body = {"prompt": "What is this?", "images": images, "options": options}
    return "/api/generate", {"model": model, "stream": stream, **body}


def _source(data: Any, media_type: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


ENVELOPES: dict[str, tuple[Callable[[Any, str, bool], tuple[str, Any]], Part]] = {
    "chat": (_chat, lambda _, url: {"type": "image_url", "image_url": {"url": url}}),
    "response": (_response, lambda _, url: {"type": "input_image", "image_url": url}),
    "messages": (_messages, lambda data, _: {"type": "image", "source": _source(data, "image/png")}),
    "chat files": (_chat, lambda _, url: {"type": "file", "file": {"file_data": url, "filename": "a.pdf"}}),
    "response files": (
        _response,
        lambda _, url: {"type": "input_file", "file_data": url, "filename": "a.pdf"},
    ),
    "messages files": (
        _messages,
        lambda data, _: {"type": "document", "source": _source(data, "application/pdf")},
    ),
    "ollama": (_ollama, lambda data, _: data),
    "generate": (_generate, lambda data, _: data),
}
BY_IMAGE = ("chat", "response", "messages", "ollama", "generate")
BY_URL = ("chat", "response", "messages", "chat files", "response files")
BY_DOCUMENT = ("chat files", "response files", "messages files")


def with_file(
    envelope: str, file: str, model: str, count: int = 1, stream: bool = False, copies: int = 1
) -> Call:
    """Return a request with `count` copies of a file."""
    enclose, part = ENVELOPES[envelope]
    piece = part(Made(f"base64 of {file}", 0), Made(f"URL of {file}", 0))
    parts: Any = Repeated(piece, count) if count > 1 else [piece]
    path, body = enclose(parts, model, stream)
    return Call(path, body, copies, refused=file in files.REFUSED)


def with_text(envelope: str, text: str, model: str) -> Call:
    """Return a request with a text in place of a file."""
    enclose, part = ENVELOPES[envelope]
    path, body = enclose([part(text, text)], model, False)
    return Call(path, body, refused=True)


def with_url(envelope: str, url: str, model: str) -> Call:
    """Return a request with a URL that must not be fetched."""
    if envelope != "messages":
        return with_text(envelope, url, model)
    path, body = _messages([{"type": "image", "source": {"type": "url", "url": url}}], model, False)
    return Call(path, body, refused=True)


def _huge(envelope: str, length: int, model: str) -> Call:
    """Return a request with an image of `length` bytes; the server allows 20 MB."""
    enclose, part = ENVELOPES[envelope]
    data = Text("AAAA", length // 4)
    url = Text("data:image/png;base64,AAAA", 1) if length < 4 else Text("A", length)
    path, body = enclose([part(data, url)], model, False)
    return Call(path, body, refused=True)


def _one_of(texts: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.integers(0, len(texts) - 1).map(lambda index: texts[index])  # long texts make long reprs


def media_calls(models: tuple[str, ...]) -> st.SearchStrategy[Call]:
    """Return requests with hostile images and documents to these models, even to those without vision."""
    model = st.sampled_from(models)
    copies = st.sampled_from([1, 1, 4, 16])
    images = st.builds(
        with_file,
        st.sampled_from(BY_IMAGE),
        st.sampled_from(files.names("image")),
        model,
        COUNTS,
        st.booleans(),
        copies,
    )
    pages = st.builds(
        with_file,
        st.sampled_from(BY_DOCUMENT),
        st.sampled_from(files.names("document")),
        model,
        COUNTS,
        st.booleans(),
        copies,
    )
    texts = st.builds(
        with_text,
        st.sampled_from((*BY_IMAGE, *BY_DOCUMENT)),
        _one_of((*pictures.WRONG_BASE64, *pictures.WRONG_DATA_URLS)),
        model,
    )
    urls = st.builds(
        with_url,
        st.sampled_from(BY_URL),
        _one_of(addresses.all_refused()),
        model,
    )
    huge = st.builds(_huge, st.sampled_from(BY_IMAGE), st.sampled_from([3_000_000, 29_000_000]), model)
    return st.one_of(images, pages, texts, urls, huge)
