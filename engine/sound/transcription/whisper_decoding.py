"""Decoding of one window of Whisper to tokens, in steps, under its rules for time stamps."""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import attrs
import mlx.core as mx
import mlx.nn as nn

from greenroom.engine.media.recordings import Samples
from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.schemas.problems import ProblemError, model_broken

RATE = 16_000
FRAME = 160  # Samples per column of the spectrogram
WINDOW_FRAMES = 3000
_MARGIN = 480  # Samples of silence after a window, which its last columns overlap
_LOWEST_LOGPROB = -100.0


@attrs.frozen(eq=False)
class DecodedWindow:
    """The decoder's output for a window.

    Args:
        tokens: Text and time stamp tokens, without control tokens and the end.
        avg_logprob: Mean log-probability; finite even if the model's numbers overflow.
        no_speech_prob: Probability of no speech; 0 if the model has no such token.
        generated: Number of tokens computed.
        is_sound: True if the log-probabilities were finite.
    """

    tokens: tuple[int, ...]
    avg_logprob: float
    no_speech_prob: float
    temperature: float
    compression_ratio: float
    generated: int
    is_sound: bool


class WindowDecoder:
    """Computes with a Whisper model of mlx-audio."""

    def __init__(self, model: Any, vocabulary: WhisperVocabulary) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.max_tokens = model.dims.n_text_ctx // 2
        self._rules = TokenRules(vocabulary, model.dims.n_vocab)

    def spectrogram(self, samples: Samples) -> tuple[mx.array, int]:
        """Return the spectrogram of a window of at most 30 s, `[3000, mels]`, and its number of frames."""
        from mlx_audio.stt.models.whisper.audio import log_mel_spectrogram, pad_or_trim

        frames = min(len(samples) // FRAME, WINDOW_FRAMES)
        mel = log_mel_spectrogram(mx.array(samples), n_mels=self.model.dims.n_mels, padding=_MARGIN)
        return pad_or_trim(mel[:frames], WINDOW_FRAMES, axis=-2).astype(self.model.dtype), frames

    def encode(self, mel: mx.array, clock: TimeBudget) -> Generator[None, None, mx.array]:
        """Compute a window's encoder features, `[1, positions, width]`, layer by layer."""
        encoder = self.model.encoder
        x = nn.gelu(encoder.conv2(nn.gelu(encoder.conv1(mel[None]))))
        x = x + encoder._positional_embedding
        for block in encoder.blocks:
            x, _, _ = block(x)
            mx.eval(x)
            if clock.is_over:
                yield
        features: mx.array = encoder.ln_post(x)
        return features

    def detect_language(self, features: mx.array) -> str:
        codes = list(self.vocabulary.languages)
        tokens = mx.array([self.vocabulary.languages[code] for code in codes])
        logits = self.model.decoder(mx.array([[self.vocabulary.start]]), features)[0][0, 0]
        return codes[_integer(mx.argmax(logits[tokens]))]

    def decode(
        self,
        features: mx.array,
        before: Sequence[int],
        beginning: Sequence[int],
        temperature: float,
        clock: TimeBudget,
    ) -> Generator[None, None, DecodedWindow]:
        """Decode a window's transcript.

        Args:
            before: Tokens of the preceding text, of which the last ones are used.
            beginning: Control tokens of language and task.

        Raises:
            ProblemError: 503 `model_broken`: the model computed NaN or infinity.
        """
        vocabulary = self.vocabulary
        context = list(before)[-(self.max_tokens - 1) :]
        initial = [*([vocabulary.previous, *context] if context else ()), *beginning]
        logits, cache, _ = self.model.decoder(mx.array([initial]), features)
        no_speech, peak = self._no_speech(logits[0, len(initial) - len(beginning)]), mx.max(logits[0, -1])
        written = self._rules.nothing_written()
        sampled, logprob = self._sample(logits, written, temperature)
        total = logprob
        mx.async_eval(sampled, total, no_speech, peak)
        tokens: list[int] = []
        computed = 1
        room = min(self.max_tokens, self.model.dims.n_text_ctx - len(initial))
        while computed < room:
            written = self._rules.add(written, sampled)
            logits, cache, _ = self.model.decoder(sampled[:, None], features, kv_cache=cache)
            following, logprob = self._sample(logits, written, temperature)
            summed = total + logprob
            mx.async_eval(following, summed)
            token = _integer(sampled)
            if not tokens and not math.isfinite(_number(peak)):
                raise ProblemError(model_broken("this recording", "file"))
            if token == vocabulary.end:
                break
            tokens.append(token)
            sampled, total = following, summed
            computed += 1
            if clock.is_over:
                yield
        else:
            if (token := _integer(sampled)) != vocabulary.end:
                tokens.append(token)
        return self._decoded(tokens, _number(total), _number(no_speech), temperature, computed)

    def _sample(self, logits: mx.array, written: Any, temperature: float) -> tuple[mx.array, mx.array]:
        logits = self._rules.filter(logits[:, -1].astype(mx.float32), written)
        if temperature == 0:
            token = mx.argmax(logits, axis=-1)
        else:
            token = mx.random.categorical(logits / temperature)
        return token, logits[0, token] - logits.logsumexp(axis=-1)

    def _no_speech(self, logits: mx.array) -> mx.array:
        if self.vocabulary.no_speech is None:
            return mx.array(0.0)
        return mx.softmax(logits.astype(mx.float32))[self.vocabulary.no_speech]

    def _decoded(
        self, tokens: list[int], total: float, no_speech: float, temperature: float, computed: int
    ) -> DecodedWindow:
        text = self.vocabulary.decode(tokens).strip().encode()
        average = total / (len(tokens) + 1)
        return DecodedWindow(
            tuple(tokens),
            max(average, _LOWEST_LOGPROB) if math.isfinite(average) else _LOWEST_LOGPROB,
            no_speech if math.isfinite(no_speech) else 0.0,
            temperature,
            len(text) / len(zlib.compress(text)),
            computed,
            math.isfinite(average),
        )


def _integer(value: mx.array) -> int:
    return int(_number(value))


def _number(value: mx.array) -> float:
    number: float = value.item()  # type: ignore[assignment]
    return number


# Whisper's rules for time stamps, as a logits processor; the same as in OpenAI's `decoding.py`.
#
# mlx-audio's own copy compares positions with token ids, so that its time stamps may go backwards. All
# operations are lazy: the next step is launched before this step's token is read.

_FIRST_TIMESTAMP_AT_MOST = 50
"""Latest first time stamp, in units of 20 ms: a window begins with speech in its first second."""


@attrs.frozen(eq=False)
class WrittenTokens:
    """The tokens of a window so far, as far as the rules for time stamps depend on them.

    All values are arrays of one element.

    Args:
        last: The last token; None if there is none.
        pair_complete: True if the token before it was a time stamp, or does not exist.
    """

    last: mx.array | None
    pair_complete: mx.array
    timestamp: mx.array


class TokenRules:
    """The rules for one model's vocabulary."""

    def __init__(self, vocabulary: WhisperVocabulary, size: int) -> None:
        self._first = vocabulary.first_timestamp
        self._end = vocabulary.end
        self._ids = mx.arange(size)[None]
        self._is_timestamp = self._ids >= self._first
        never = {*vocabulary.suppressed, vocabulary.no_timestamps}
        self._never = self._mask(never, size)
        self._never_first = self._mask({*never, *vocabulary.blank}, size) | ~self._is_timestamp
        self._never_first |= self._ids > self._first + _FIRST_TIMESTAMP_AT_MOST
        mx.eval(self._ids, self._is_timestamp, self._never, self._never_first)

    def nothing_written(self) -> WrittenTokens:
        """Return the state at a window's beginning."""
        return WrittenTokens(None, mx.array([True]), mx.array([self._first]))

    def add(self, written: WrittenTokens, token: mx.array) -> WrittenTokens:
        """Return the state after `token`, `[1]`."""
        complete = mx.array([True]) if written.last is None else written.last >= self._first
        return WrittenTokens(token, complete, mx.where(token >= self._first, token, written.timestamp))

    def filter(self, logits: mx.array, written: WrittenTokens) -> mx.array:
        """Return logits, `[1, vocabulary]`, with forbidden tokens set to minus infinity."""
        logits = mx.where(self._forbidden(written), -mx.inf, logits)
        # If all time stamps together are likelier than the likeliest text token, text is forbidden.
        of_timestamps = mx.where(self._is_timestamp, logits, -mx.inf).logsumexp(axis=-1, keepdims=True)
        of_text = mx.where(self._is_timestamp, -mx.inf, logits).max(axis=-1, keepdims=True)
        return mx.where((of_timestamps > of_text) & ~self._is_timestamp, -mx.inf, logits)

    def _forbidden(self, written: WrittenTokens) -> mx.array:
        if written.last is None:
            return self._never_first
        after_timestamp = written.last >= self._first
        opened = after_timestamp & ~written.pair_complete
        # Time stamps come in pairs, a segment's end and the next one's start, and never go back;
        # no segment is empty.
        earliest = mx.where(opened, written.timestamp, written.timestamp + 1)
        return (
            self._never
            | (self._is_timestamp & ((self._ids < earliest) | (after_timestamp & written.pair_complete)))
            | ((self._ids < self._end) & opened)
        )

    @staticmethod
    def _mask(tokens: set[int], size: int) -> mx.array:
        mask = mx.zeros((1, size), dtype=mx.bool_)
        mask[:, mx.array(sorted(token for token in tokens if 0 <= token < size))] = True
        return mask


@attrs.frozen
class WhisperVocabulary:
    """Ids of the tokens by which Whisper marks language, silence, times and the end of a transcript.

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
        if not self.is_multilingual:
            return (self.start,)
        return (self.start, self.languages[language], getattr(self, task))

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self.tokenizer.encode(f" {text.strip()}")
        return [token for token in tokens if token < self.end]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode([token for token in tokens if token < self.end]))


def make_vocabulary(model: Any) -> WhisperVocabulary:
    """Return the vocabulary of a Whisper model of mlx-audio. Raises ValueError: the folder has no tokenizer,
    or not a Whisper one.
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
