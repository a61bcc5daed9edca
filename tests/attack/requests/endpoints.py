"""Minimal valid requests of each endpoint, to which attacks add hostile parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from greenroom.tests.attack.requests.json_pieces import Repeated

Body = dict[str, Any]
Base = tuple[str, Body]
Maker = Callable[[str, int, bool], Body]
"""Function that makes a body from a text, the maximum number of tokens, and whether to stream."""


def _messages(text: str, limit: int, stream: bool) -> Body:
    return {"messages": _conversation(text), "max_tokens": limit, "stream": stream}


def _prompt(text: str, limit: int, _stream: bool) -> Body:
    return {"prompt": text, "max_tokens": limit}


def _completion(text: str, limit: int, stream: bool) -> Body:
    scored = {"echo": True, "logprobs": 2} if stream else {}
    return {**_prompt(text, limit, stream), **scored, "stream": stream}


def _response(text: str, limit: int, stream: bool) -> Body:
    return {"input": text, "max_output_tokens": limit, "stream": stream, "store": False}


def _items(text: str, _limit: int, _stream: bool) -> Body:
    return {"items": _conversation(text), "metadata": {"text": text[:100]}}


def _ollama_chat(text: str, limit: int, stream: bool) -> Body:
    return {"messages": _conversation(text), "options": {"num_predict": limit}, "stream": stream}


def _ollama_generate(text: str, limit: int, stream: bool) -> Body:
    return {"prompt": text, "options": {"num_predict": limit}, "stream": stream}


def _tokenize(text: str, _limit: int, whole: bool) -> Body:
    return {"messages": _conversation(text)} if whole else {"prompt": text}


def _detokenize(_text: str, limit: int, _stream: bool) -> Body:
    return {"tokens": Repeated(7, limit)}


def _conversation(text: str) -> list[Body]:
    return [{"role": "user", "content": text}]


BODIES: dict[str, Maker] = {
    "/v1/chat/completions": _messages,
    "/v1/messages": _messages,
    "/v1/messages/count_tokens": _messages,
    "/v1/completions": _completion,
    "/v1/responses": _response,
    "/v1/responses/input_tokens": _response,
    "/v1/responses/compact": _response,
    "/v1/conversations": _items,
    "/api/chat": _ollama_chat,
    "/api/generate": _ollama_generate,
    "/api/show": _prompt,
    "/tokenize": _tokenize,
    "/detokenize": _detokenize,
    "/apply-template": _messages,
}
CHAT = "/v1/chat/completions"
OFTEN = ("/v1/chat/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
"""Endpoints drawn more often than others, since most clients use them."""
PATHS = tuple(BODIES)


def bases(models: tuple[str, ...]) -> st.SearchStrategy[Base]:
    """Return valid requests to these models."""
    text = st.sampled_from(["Tell me about the sea", "a", "", "List ten things. " * 40])
    return st.builds(
        _base,
        st.sampled_from([*OFTEN, *PATHS]),
        st.sampled_from(models),
        text,
        st.sampled_from([8, 64, 200]),
        st.booleans(),
    )


def _base(path: str, model: str, text: str, limit: int, stream: bool) -> Base:
    return path, {"model": model, **BODIES[path](text, limit, stream)}
