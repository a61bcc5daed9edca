"""Prompts without a chat template: text, token ids, and text with a gap to fill."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.adapters.context_limits import check_text_length, collect_tokens
from greenroom.engine.catalog.families import find_fill_format
from greenroom.engine.tokenizer.control_tokens import ControlTokenMarker
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.prepared_input import EchoedPrompt
from greenroom.schemas.messages.requests import RawInput
from greenroom.schemas.problems import ProblemError, context_length_exceeded, invalid


class RawPrompts:
    """Tokenizes the raw prompts of one model. `tokenizer`: tokenizer of the model; `context_length`: limit on
    prompt and answer together, in tokens.
    """

    def __init__(self, tokenizer: ChatTokenizer, context_length: int) -> None:
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._fill_format = form = find_fill_format(tokenizer.added_tokens)
        tokens = (*form.tokens, *form.ends) if form is not None else ()
        self._marker = ControlTokenMarker({*tokenizer.control_tokens, *tokens})

    def encode(self, raw: RawInput, *, may_be_empty: bool = False) -> list[int]:
        """Return the token ids of a prompt.

        Raises:
            ProblemError: 400 for a prompt that cannot be continued.
        """
        if raw.suffix:
            return self._encode_gap(raw.prompt, raw.suffix)
        if not (raw.prompt or may_be_empty):
            raise invalid(f"`{raw.param}` is empty: there is nothing to continue.", raw.param)
        if isinstance(raw.prompt, str):
            check_text_length(len(raw.prompt), self._tokenizer, self._context_length)
            pieces = self._tokenizer.encode_prompt(raw.prompt, begins=raw.begins)
            return collect_tokens(pieces, len(raw.prompt), self._context_length)
        return self._checked(raw.prompt, raw.param)

    def echo(self, raw: RawInput, tokens: Sequence[int]) -> EchoedPrompt | None:
        """Return the prompt to echo to the client; None if no echo is requested. Raises ProblemError: 400 if
        the prompt is too long to be scored.
        """
        if not raw.echo:
            return None
        if raw.scored is not None and len(tokens) > raw.scored:
            detail = (
                f"`{raw.param}` has {len(tokens):,} tokens, but with `echo` and `logprobs` a prompt may have "
                f"at most {raw.scored:,}."
            )
            raise invalid(detail, raw.param)
        hidden, scored, size = 0, raw.scored is not None, self._tokenizer.vocab_size
        if not isinstance(raw.prompt, str):
            return EchoedPrompt(self._tokenizer.decode(tokens), hidden, scored, size)
        beginning, bos = self._tokenizer.beginning, self._tokenizer.bos_token
        if raw.begins and not (bos and raw.prompt.startswith(bos)):
            hidden = len(beginning) if list(tokens[: len(beginning)]) == beginning else 0
        return EchoedPrompt(raw.prompt, hidden, scored, size)

    def stop_tokens(self, raw: RawInput) -> frozenset[int]:
        """Return further tokens that end the answer, besides those that end a turn."""
        if raw.suffix and self._fill_format is not None:
            return self._fill_format.stop_tokens(self._tokenizer.added_tokens)
        return frozenset()

    def _encode_gap(self, prefix: str | tuple[int, ...], suffix: str) -> list[int]:
        form = self._fill_format
        if form is None:
            detail = "`suffix` needs a model that was trained to fill gaps: this one has no tokens for them."
            raise invalid(detail, "suffix", "unsupported_parameter")
        if not isinstance(prefix, str):
            raise invalid("`suffix` needs a `prompt` that is text.", "suffix", "unsupported_parameter")
        check_text_length(len(prefix) + len(suffix), self._tokenizer, self._context_length)
        text = form.prompt(prefix, suffix, self._marker.text)
        pieces = self._tokenizer.encode_rendered(text)
        tokens = collect_tokens(pieces, len(text), self._context_length)
        return [*self._tokenizer.beginning, *tokens]

    def _checked(self, tokens: tuple[int, ...], param: str) -> list[int]:
        if len(tokens) > self._context_length:
            raise ProblemError(context_length_exceeded(len(tokens), self._context_length))
        size = self._tokenizer.vocab_size
        for index, ident in enumerate(tokens):
            if isinstance(ident, bool) or not isinstance(ident, int) or not 0 <= ident < size:
                field = f"{param}[{index}]"
                raise invalid(f"`{field}` is not a token of this model: ids go from 0 to {size - 1}.", field)
        return list(tokens)
