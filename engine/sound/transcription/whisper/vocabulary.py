"""Whisper's control tokens (arXiv:2212.04356): languages, tasks, time stamps, no speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs


@attrs.frozen
class WhisperVocabulary:
    """Token ids by meaning.

    Args:
        tokenizer: mlx-audio's tokenizer.
        languages: Tokens by ISO 639-1 code; empty if the model is English-only.
        no_speech: None if the model has no such token.
        first_timestamp: The token `<|0.00|>`; every higher id is a time stamp too.
        suppressed: Tokens that are never sampled.
        blank: Tokens that are never sampled first.
    """

    tokenizer: Any
    end: int
    start: int
    previous: int
    transcribe: int
    translate: int
    no_timestamps: int
    no_speech: int | None
    first_timestamp: int
    languages: Mapping[str, int]
    suppressed: tuple[int, ...]
    blank: tuple[int, ...]

    @property
    def is_multilingual(self) -> bool:
        """True if the model detects languages and translates."""
        return bool(self.languages)

    def beginning(self, language: str, task: str) -> tuple[int, ...]:
        """Return the control tokens for a language and a task."""
        if not self.is_multilingual:
            return (self.start,)
        return (self.start, self.languages[language], getattr(self, task))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of preceding text."""
        tokens: list[int] = self.tokenizer.encode(f" {text.strip()}")
        return [token for token in tokens if token < self.end]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without control tokens."""
        return str(self.tokenizer.decode([token for token in tokens if token < self.end]))


def make_vocabulary(model: Any) -> WhisperVocabulary:
    """Return the vocabulary of a Whisper model of mlx-audio.

    Raises:
        ValueError: The folder has no tokenizer, or not a Whisper one.
    """
    from mlx_audio.stt.models.whisper.decoding import get_suppress_tokens

    if getattr(model, "_processor", None) is None:
        raise ValueError("its folder has no tokenizer (tokenizer.json, preprocessor_config.json)")
    tokenizer = model.get_tokenizer()
    known = tokenizer.hf_tokenizer.get_vocab()
    needed = ("<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>")
    if missing := [name for name in needed if name not in known]:
        raise ValueError(f"its tokenizer has no {', '.join(missing)}, which those of Whisper have")
    languages: dict[str, int] = {}
    if model.is_multilingual:
        # Of the library's two lists of languages, only one skips those that the tokenizer lacks.
        codes = tokenizer.all_language_codes
        languages = {code: known[f"<|{code}|>"] for code in codes if f"<|{code}|>" in known}
    vocabulary = WhisperVocabulary(
        tokenizer,
        tokenizer.eot,
        tokenizer.sot,
        tokenizer.sot_prev,
        tokenizer.transcribe,
        tokenizer.translate,
        tokenizer.no_timestamps,
        tokenizer.no_speech,
        known.get("<|0.00|>", tokenizer.no_timestamps + 1),  # some tokenizers name no time stamps
        languages,
        get_suppress_tokens(tokenizer),
        (*tokenizer.encode(" "), tokenizer.eot),
    )
    if not vocabulary.end < vocabulary.start < vocabulary.first_timestamp < model.dims.n_vocab:
        raise ValueError("its tokenizer's control tokens are not in the order of Whisper's")
    return vocabulary
