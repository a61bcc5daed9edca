"""Tokenization of texts within a model's context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from greenroom.engine.adapters.prompts.prompt_contents import contents_of
from greenroom.engine.adapters.prompts.raw_prompts import RawPrompts
from greenroom.engine.encoding.rows import Tokens
from greenroom.engine.tokenizer.text_encoder import TextEncoder
from greenroom.engine.tokenizer.text_pieces import PIECE
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.requests import RawInput
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.model_protocol import PromptContents

_GROUP = 64
"""Limit of texts tokenized at once."""
CHARACTERS_OF_TOKEN = 64
"""Limit of characters read per token of context, but at least 65,536 in all.

Words are shorter. Longer runs (a million spaces, one endless word) can take a tokenizer minutes.
"""


class TextRows:
    """Tokenizes whole texts for one model.

    Args:
        longest: Limit of tokens per text, including special tokens.
    """

    def __init__(self, tokenizer: ChatTokenizer, longest: int) -> None:
        self.longest = longest
        self._tokenizer = tokenizer
        self._encoder = TextEncoder(tokenizer.wrapped)
        self._raw_prompts = RawPrompts(tokenizer, longest)
        self._backend = getattr(tokenizer.wrapped._tokenizer, "_tokenizer", None)

    def tokenize(self, texts: Sequence[str]) -> Iterator[list[int] | None]:
        """Yield the token ids of each text, with special tokens; and None between steps."""
        at = 0
        while at < len(texts):
            end, size = at, 0
            while end < len(texts) and end - at < _GROUP and (size := size + len(texts[end])) <= PIECE:
                end += 1
            if end == at or self._backend is None:
                tokens: list[int] = []
                for piece in self._encoder.pieces(texts[at], special=True):
                    tokens += piece
                    yield None
                yield tokens
                at += 1
                continue
            yield from (found.ids for found in self._backend.encode_batch_fast(list(texts[at:end])))
            yield None
            at = end

    def bounded(self, text: str, truncate: bool, param: str) -> str:
        """Return a text with no more characters than could fit.

        Args:
            truncate: True to cut a longer text instead of rejecting it.

        Raises:
            ProblemError: 400 that names `param`.
        """
        most = max(PIECE, self.longest * CHARACTERS_OF_TOKEN)
        if len(text) > most and not truncate:
            raise self._too_long(param, f"{len(text)} characters, and more than {most} are never read")
        return text[:most]

    def around(self) -> tuple[list[int], list[int]]:
        """Return the special tokens before and after every text."""
        return self._encoder.special_tokens

    def tokens_before(self, prompt: str) -> int:
        """Return the number of tokens up to the end of a prompt that precedes a text."""
        before, _ = self.around()
        return len(before) + len(self._encoder.inside(prompt))

    def fit(self, tokens: Sequence[int], truncate: bool, param: str, *, as_they_are: bool = False) -> Tokens:
        """Return the token ids, cut to the limit; the special tokens at the end are kept.

        Args:
            truncate: True to cut a longer text instead of rejecting it.
            as_they_are: True if the client sent token ids, which get no special tokens.

        Raises:
            ProblemError: 400 that names `param`: the text is empty or too long.
        """
        if not tokens:
            raise invalid(f"`{param}` is empty: there is nothing that the model could read.", param)
        if len(tokens) > self.longest:
            if not truncate:
                raise self._too_long(param, str(len(tokens)))
            end = [] if as_they_are else self.around()[1]
            tokens = [*tokens[: max(self.longest - len(end), 0)], *end][: self.longest]
        return np.array(tokens, np.int32)

    def checked(self, tokens: Sequence[int], param: str) -> Sequence[int]:
        """Return a client's token ids after checking them.

        Raises:
            ProblemError: 400: an id is not in the vocabulary.
        """
        size = self._tokenizer.vocab_size
        if tokens and not (min(tokens) >= 0 and max(tokens) < size):
            at = next(at for at, ident in enumerate(tokens) if not 0 <= ident < size)
            field = f"{param}[{at}]"
            raise invalid(f"`{field}` is not a token of this model: ids go from 0 to {size - 1}.", field)
        return tokens

    def inspect(self, raw: RawInput) -> PromptContents:
        """Return a text as the model reads it.

        Raises:
            ProblemError: 400: it is too long.
        """
        tokens = self._raw_prompts.encode(raw, may_be_empty=True)
        text = raw.prompt if isinstance(raw.prompt, str) else None
        return contents_of(tokens, text, self._tokenizer, self.longest)

    def _too_long(self, param: str, has: str) -> ProblemError:
        detail = (
            f"This model's maximum context length is {self.longest} tokens, but `{param}` has {has}. Shorten "
            "it, or send `truncate: true` to have its end cut off."
        )
        return invalid(detail, param, "context_length_exceeded")
