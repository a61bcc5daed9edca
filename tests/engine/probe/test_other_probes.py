"""Answers of models that do not write: what they show, and what makes them unusable."""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import Sequence
from pathlib import Path

import pytest

from greenroom.engine.probe.probe import Answer, Probe, probe_image
from greenroom.engine.probe.probes import EmbeddingProbe, RerankProbe, SpeechProbe, write_recording
from greenroom.schemas.events.events import Finished, InferenceEvent, Usage
from greenroom.schemas.events.result_events import AudioChunk, Score, Vector
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import ProblemError

EMPTY = ProbedCapabilities("m", "embeddings", "default")


def judged(probe: Probe, *events: InferenceEvent) -> ProbedCapabilities:
    return probe.judge((Answer(probe.questions[0], (*events, Finished("stop", Usage()))),))


def vector(*values: float) -> Vector:
    return Vector(struct.pack(f"<{len(values)}f", *values))


@pytest.mark.parametrize(
    ("values", "normalized"), [((0.6, 0.8), True), ((0.6, 0.8004), True), ((3.0, 4.0), False)]
)
def test_vectors_are_measured(values: Sequence[float], normalized: bool) -> None:
    found = judged(EmbeddingProbe(EMPTY), vector(1.0, 0.0), vector(*values))
    assert (found.embedding_dimensions, found.is_normalized) == (2, normalized)


@pytest.mark.parametrize(
    ("probe", "events"),
    [
        (EmbeddingProbe(EMPTY), (vector(1.0), vector(math.nan))),
        (EmbeddingProbe(EMPTY), (vector(1.0), vector(math.inf))),
        (EmbeddingProbe(EMPTY), (vector(1.0),)),
        (RerankProbe(EMPTY), (Score(0.5), Score(math.nan))),
        (RerankProbe(EMPTY), (Score(0.5), Score(1.5))),
        (SpeechProbe(EMPTY), ()),
        (SpeechProbe(EMPTY), (AudioChunk(b"", 24_000),)),
    ],
)
def test_useless_answers_fail_the_probe(probe: Probe, events: Sequence[InferenceEvent]) -> None:
    with pytest.raises(ProblemError) as failed:
        judged(probe, *events)
    assert (failed.value.problem.status, failed.value.problem.code) == (500, "probe_failed")


def test_the_files_of_questions_can_be_read(tmp_path: Path) -> None:
    from PIL import Image

    assert Image.open(io.BytesIO(probe_image().data)).size == (224, 224)
    write_recording(tmp_path / "tone.wav")
    with wave.open(str(tmp_path / "tone.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (16_000, 16_000)
