"""Log-probabilities of a prompt's own tokens, computed chunk by chunk during prefill."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.text.sampling.logprobs import LogprobScorer
from greenroom.schemas.events.events import PromptText, Token, TokenLogprob
from greenroom.schemas.messages.prepared_input import EchoedPrompt

_LOGITS_BYTES = 64 * 1024 * 1024
"""Size limit of the logits scored together, in bytes of float32."""


class PromptLogprobs:
    """Scores the tokens of one prompt, for all choices that continue it.

    The logits of a chunk are reduced on the device to a few numbers per token, which are read later. A prompt
    that is recomputed after preemption is not scored twice.

    Args:
        echo: The prompt as the client sees it.
        name_token: Function from a token id to its token.
        top: Number of top alternatives that the client requested.
        choices: Number of choices.

    Attributes:
        chunk: Maximum number of tokens whose logits may be scored together.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        echo: EchoedPrompt,
        name_token: Callable[[int], Token],
        top: int,
        choices: int,
    ) -> None:
        self.chunk = max(1, _LOGITS_BYTES // (4 * echo.vocabulary))
        self._prompt = prompt
        self._echo = echo
        self._name_token = name_token
        self._top = top
        self._choices = choices
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._scored = 0
        self._read = 0
        self._launched: list[tuple[int, mx.array]] = []

    @property
    def is_complete(self) -> bool:
        """True once scoring of all tokens but the first is launched."""
        return self._scored >= len(self._prompt) - 1

    def score(self, logits: mx.array, start: int) -> list[mx.array]:
        """Score the tokens that follow those of a chunk; return the arrays to evaluate.

        Args:
            logits: Unevaluated logits, `[chunk, vocabulary]`.
            start: Position of the chunk's first token.
        """
        end = min(start + logits.shape[0], len(self._prompt) - 1)
        first = max(start, self._scored)
        if first >= end:
            return []
        scorer = LogprobScorer(dict.fromkeys(range(end - first), self._top), end - first)
        targets = mx.array(list(self._prompt[first + 1 : end + 1]))
        scores = scorer.score(scorer.prepare(logits[first - start : end - start]), targets)
        self._launched.append((first + 1, scores))
        self._scored = end
        return [scores]

    def read(self, keep: int = 0) -> list[PromptText]:
        """Return the next scored piece of the prompt for every choice, or nothing. May wait.

        Args:
            keep: Number of last chunks to leave unread, since they may be in flight.
        """
        count = len(self._launched) - keep
        ready, self._launched = self._launched[: max(count, 0)], self._launched[max(count, 0) :]
        complete = self.is_complete and not self._launched
        if self._read >= len(self._prompt) or not (ready or complete):
            return []
        first = None if self._read else self._token(0)
        self._read = max(self._read, 1)
        logprobs = tuple(logprob for chunk in ready for logprob in self._named(*chunk))
        tokens = [*([first] if first else []), *(logprob.token for logprob in logprobs)]
        text = "".join(self._characters.decode(token.bytes) for token in tokens)
        if self._read >= len(self._prompt):
            text += self._characters.decode(b"", final=True)
        return [PromptText(text, index, first, logprobs) for index in range(self._choices)]

    def _named(self, start: int, scores: mx.array) -> Iterator[TokenLogprob]:
        rows: Any = scores.tolist()
        for position, row in enumerate(rows, start):
            width = len(row) // 2
            name = self._name_token
            top = tuple((name(int(row[1 + width + i])), row[1 + i]) for i in range(width))
            self._read = position + 1
            yield TokenLogprob(self._token(position), row[0], top)

    def _token(self, position: int) -> Token:
        """Return a prompt token with the bytes visible to the client."""
        token, echo = self._name_token(self._prompt[position]), self._echo
        if position < echo.hidden:
            return attrs.evolve(token, bytes=b"")
        if position == echo.hidden and token.bytes.startswith(b" ") and not echo.text.startswith(" "):
            return attrs.evolve(token, bytes=token.bytes[1:])  # SentencePiece adds a leading space to a text.
        return token
