"""Hostile requests to embedding, rerank, speech and transcription models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from greenroom.tests.attack.requests import files
from greenroom.tests.attack.requests.json_pieces import Bytes, Literal, Made, Repeated, Text
from greenroom.tests.attack.requests.steps import Call, FormCall
from greenroom.tests.support.hostile import addresses, uploads

Body = dict[str, Any]

LENGTHS = st.sampled_from([1, 100, 2_000, 100_000, 1_000_000])
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [0, -1, 1, 0.5, 2**31, 2**63, 1e308, True, None, "", "a", [], {}, [[]], Literal("NaN"), Literal("1e999")]
)
_TEXTS = ("word ", "a", "é", "🦊", "\n", " ", "[CLS]", "<|im_start|>", "\u0000", "Hi. ")
JSON_PATHS = {
    "embeds": ("/v1/embeddings", "/api/embed", "/api/embeddings"),
    "ranks": ("/v1/rerank", "/v2/rerank", "/v1/score"),
    "speaks": ("/v1/audio/speech",),
}
"""Endpoints that take JSON, by model type."""
FORM_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


def sane(path: str) -> Body:
    """Return a minimal valid body for an endpoint, without the model."""
    match path:
        case "/v1/embeddings" | "/api/embed":
            return {"input": "Hello"}
        case "/api/embeddings":
            return {"prompt": "Hello"}
        case "/v1/rerank" | "/v2/rerank":
            return {"query": "Hello", "documents": ["Hello", "there"]}
        case "/v1/score":
            return {"text_1": "Hello", "text_2": ["Hello", "there"]}
    return {"input": "Hello", "voice": "default", "response_format": "pcm"}


def _texts() -> st.SearchStrategy[Any]:
    text = st.sampled_from(_TEXTS)
    items: st.SearchStrategy[Any] = st.sampled_from(
        ["", "a", "word " * 600, 1, None, [], [1], [-1], [2**40], [1.5], {}, {"text": "a"}, {"image": "a"}]
    )
    return st.one_of(
        st.builds(Text, text, LENGTHS),
        st.builds(Repeated, items, LENGTHS),
        st.builds(Repeated, st.builds(Text, text, st.just(2_000)), st.sampled_from([10, 300])),
        st.builds(lambda count: [Repeated(7, count)], LENGTHS),
        ODD,
    )


def _hostile_fields(path: str) -> st.SearchStrategy[Body]:
    fields = {
        **{name: _texts() for name in sane(path)},
        **dict.fromkeys(
            ("dimensions", "top_n", "speed", "truncate", "encoding_format", "user", "options"), ODD
        ),
        **dict.fromkeys(("stream_format", "instructions", "voice", "response_format", "input_type"), ODD),
        **dict.fromkeys(("keep_alive", "return_documents", "max_tokens_per_doc", "language", "stream"), ODD),
        "ref_audio": st.sampled_from(
            [*addresses.FOREIGN, *(Made(f"base64 of {file}", 0) for file in files.names("sound"))]
        ),
    }
    chosen = st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=2, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names}))


def _call(path: str, model: str, fields: Body, copies: int) -> Call:
    return Call(path, {"model": model, **sane(path), **fields}, copies)


def form_call(
    path: str,
    model: str,
    file: str,
    name: str = "speech.mp3",
    fields: Mapping[str, str] = MappingProxyType({}),
    copies: int = 1,
) -> FormCall:
    """Return a multipart form with a file."""
    values = tuple({"model": model, **fields}.items())
    return FormCall(path, values, file, name, copies, refused=file in files.REFUSED)


def broken_form(path: str, broken: str) -> Call:
    """Return one of `uploads.BROKEN_FORMS`."""
    media_type, body = uploads.BROKEN_FORMS[broken]
    return Call(path, Bytes(body), headers=(("content-type", media_type),), refused=True)


def _json_calls(kind: str, models: tuple[str, ...]) -> st.SearchStrategy[Call]:
    copies = st.sampled_from([1, 1, 4, 16, 40])
    model = st.sampled_from([kind] * 8 + [*models])
    return st.sampled_from(JSON_PATHS[kind]).flatmap(
        lambda path: st.builds(_call, st.just(path), model, _hostile_fields(path), copies)
    )


def _form_calls(models: tuple[str, ...]) -> st.SearchStrategy[Call | FormCall]:
    odd = st.sampled_from(["", "0", "-1", "nan", "1e999", "xx", "true", "word", "a" * 5_000, "🦊", "[]"])
    names = ("language", "prompt", "temperature", "response_format", "stream", "timestamp_granularities[]")
    fields = st.dictionaries(
        st.sampled_from((*names, "include[]", "chunking_strategy", "file")), odd, max_size=2
    )
    forms = st.builds(
        form_call,
        st.sampled_from(FORM_PATHS),
        st.sampled_from(["hears"] * 8 + [*models]),
        st.sampled_from((*files.names("sound"), "1 GB", "sound: plain")),
        st.sampled_from(("speech.mp3", "speech.mp3", *uploads.NAMES)),
        fields,
        st.sampled_from([1, 1, 4, 16]),
    )
    broken = st.builds(
        broken_form, st.sampled_from(FORM_PATHS), st.sampled_from(sorted(uploads.BROKEN_FORMS))
    )
    return st.one_of(forms, forms, forms, broken)


def other_calls(kinds: tuple[str, ...], models: tuple[str, ...]) -> st.SearchStrategy[Call | FormCall]:
    """Return requests to models of these types, and occasionally to one of another type."""
    asked: list[st.SearchStrategy[Call | FormCall]] = [
        _json_calls(kind, models) for kind in kinds if kind in JSON_PATHS
    ]
    if "hears" in kinds:
        asked += [_form_calls(models), _form_calls(models)]
    return st.one_of(asked)
