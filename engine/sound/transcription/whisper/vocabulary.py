"""The tokens that steer Whisper (arXiv:2212.04356): languages, tasks, time stamps, silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs


@attrs.frozen
class WhisperVocabulary:
    """Token ids by what they mean.

    Args:
        tokenizer: mlx-audio's.
        languages: Tokens by ISO 639-1 code; empty if the model knows English alone.
        no_speech: None if the model has no such token.
        first_timestamp: `<|0.00|>`; every later token is a time stamp too.
        suppressed: Never sampled.
        blank: Never sampled first.
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
        """Whether it can tell languages, and translate."""
        return bool(self.languages)

    def beginning(self, language: str, task: str) -> tuple[int, ...]:
        """Return the tokens that tell what is to be written."""
        if not self.is_multilingual:
            return (self.start,)
        return (self.start, self.languages[language], getattr(self, task))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of text that precedes."""
        tokens: list[int] = self.tokenizer.encode(f" {text.strip()}")
        return [token for token in tokens if token < self.end]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return what tokens read; those that steer read nothing."""
        return str(self.tokenizer.decode([token for token in tokens if token < self.end]))


def make_vocabulary(model: Any) -> WhisperVocabulary:
    """Return the vocabulary of one of mlx-audio's Whisper models.

    Raises:
        ValueError: Its folder has no tokenizer, or one of another model.
    """
    from mlx_audio.stt.models.whisper.decoding import get_suppress_tokens

    if getattr(model, "_processor", None) is None:
        raise ValueError("its folder has no tokenizer (tokenizer.json, preprocessor_config.json)")
    tokenizer = model.get_tokenizer()
    languages: dict[str, int] = {}
    if model.is_multilingual:
        # The library skips languages that the tokenizer lacks, in one list but not in the other.
        known = tokenizer.hf_tokenizer.get_vocab()
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
        tokenizer.timestamp_begin,
        languages,
        get_suppress_tokens(tokenizer),
        (*tokenizer.encode(" "), tokenizer.eot),
    )
    if not vocabulary.end < vocabulary.start < vocabulary.first_timestamp < model.dims.n_vocab:
        raise ValueError("its tokenizer is none of Whisper's")
    return vocabulary
