"""Request bodies of `/tokenize` and `/detokenize`, after vLLM and llama.cpp's server."""

from __future__ import annotations

import attrs


@attrs.frozen
class TokenizeRequest:
    """Text to tokenize, under vLLM's name (`prompt`) or llama.cpp's (`content`).

    With `messages` it is a chat request (`greenroom.schemas.openai.chat`) instead.

    Args:
        add_special_tokens: Flag for `prompt` that adds the initial special tokens; true by default (vLLM).
        add_special: The same flag for `content`; false by default (llama.cpp).
        return_token_strs: Flag that also requests each token's text.
        with_pieces: The same flag in llama.cpp's form, where each token becomes an object.
    """

    model: str = "default"
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    return_token_strs: bool | None = None
    with_pieces: bool | None = None


@attrs.frozen
class DetokenizeRequest:
    """Token ids to convert into text."""

    tokens: tuple[int, ...]
    model: str = "default"
