"""Decoding of one window to tokens, in steps between which other requests can compute."""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
from typing import Any

import attrs
import mlx.core as mx
import mlx.nn as nn

from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.media.audio.samples import Samples
from greenroom.engine.sound.transcription.whisper.token_rules import TokenRules
from greenroom.engine.sound.transcription.whisper.vocabulary import WhisperVocabulary
from greenroom.schemas.problems import ProblemError, model_broken

RATE = 16_000
FRAME = 160
"""Samples per column of the spectrogram."""
WINDOW_FRAMES = 3000
_MARGIN = 480
"""Samples of silence after a window, which its last columns overlap."""
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
    """Computes with a Whisper model of mlx-audio.

    Args:
        model: mlx-audio's model.
    """

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
        """Return the most likely language."""
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
