"""What clients of `/tokenize` and `/detokenize` send, as vLLM and llama.cpp's server have them."""

from __future__ import annotations

import attrs


@attrs.frozen
class TokenizeRequest:
    """Text to be tokenized, under vLLM's name (`prompt`) or llama.cpp's (`content`).

    With `messages` it is a chat request (`greenroom.schemas.openai.chat`) instead.

    Args:
        add_special_tokens: With what a prompt begins with; true by default, as vLLM has it.
        add_special: The same with `content`; false by default, as llama.cpp has it.
        return_token_strs: What each token writes is wanted too, beside the ids.
        with_pieces: The same, in llama.cpp's form: each token is an object.
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
    """Token ids whose text is wanted."""

    tokens: tuple[int, ...]
    model: str = "default"
