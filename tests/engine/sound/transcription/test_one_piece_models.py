"""Models that transcribe with mlx-audio's own code, window by window, and unsupported ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.sound.transcription.transcription_adapter import make_transcription_adapter
from greenroom.schemas.events.events import Finished
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.transcription_engines import open_transcriber
from greenroom.tests.support.media.recordings import noise, silence, write_recording
from greenroom.tests.support.models.tiny_models import SPECIAL_TOKENS, make_tokenizer

CONFIG = {
    "model_type": "moonshine",
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "encoder_num_hidden_layers": 1,
    "decoder_num_hidden_layers": 1,
    "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2,
}


@pytest.fixture
def moonshine(tmp_path: Path) -> Path:
    """Return a model with random weights, with convolutions in PyTorch's layout."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    library = import_model_code("mlx_audio.stt.models.moonshine.moonshine")
    folder = tmp_path / "hears-otherwise"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    make_tokenizer(folder)
    mx.random.seed(3)
    weights = dict(tree_flatten(library.Model(library.ModelConfig.from_dict(CONFIG)).parameters()))
    stored = {
        name: mx.transpose(value, (0, 2, 1)) if "conv" in name and value.ndim == 3 else value * 3
        for name, value in weights.items()
    }
    (embedding,) = (name for name in stored if name.endswith("embed_tokens.weight"))
    reserved = len(SPECIAL_TOKENS)  # Never the most likely token, and not part of a text.
    stored[embedding] = mx.concatenate([mx.zeros((reserved, 32)), stored[embedding][reserved:]])
    mx.save_safetensors(str(folder / "model.safetensors"), stored, metadata={"format": "mlx"})
    return folder


@pytest.mark.deep
def test_each_window_reads_as_mlx_audio_has_it(moonshine: Path, tmp_path: Path) -> None:
    spoken = noise(1.5)
    sound = np.concatenate([spoken, silence(30), spoken])
    path = write_recording(tmp_path / "recording.wav", sound, "wavfloat")
    model = import_model_code("mlx_audio.stt.utils").load_model(moonshine, model_type="moonshine")
    with open_transcriber(moonshine) as transcriber:
        transcript = transcriber.transcribe(path, language="en")
    heard = np.concatenate([spoken, silence(0.5)])
    first, second = transcript.segments
    assert first.text == f" {model.generate(heard).text}"
    times = [first.start, first.end, second.start, second.end]
    assert times == pytest.approx([0, 2, 31, 33], abs=0.03)
    assert isinstance(transcript.end, Finished)
    assert transcript.end.usage.generated > 0


def test_what_such_a_model_cannot_do_is_refused_by_name(moonshine: Path, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "recording.wav", noise(1))
    with open_transcriber(moonshine) as transcriber:
        for asked, param in (
            ({"task": "translate"}, "model"),
            ({"prompt": "names"}, "prompt"),
            ({"word_timestamps": True}, "timestamp_granularities[]"),
        ):
            with pytest.raises(ProblemError) as refused:
                transcriber.submit(path, **asked)
            assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


@pytest.mark.parametrize(
    ("model_type", "said"),
    [
        (
            "qwen3_forced_aligner",
            "'qwen3_forced_aligner' model, which is not served: it finds the times",
        ),
        ("parakeet_tdt_five_value", "is a 'phonon2' model"),
        ("voxtral", 'pip install "mistral-common[audio]"'),
    ],
)
def test_an_architecture_that_is_not_served_is_refused_with_the_reason(
    tmp_path: Path, model_type: str, said: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(ProblemError) as refused:
        make_transcription_adapter("aligner", tmp_path, detect(tmp_path))
    assert refused.value.problem.status == 501
    assert said in refused.value.problem.detail


@pytest.mark.parametrize("model_type", ["parakeet_tdt", "voxtral_realtime", "vibevoice_asr", "glm"])
def test_an_architecture_is_known_by_its_second_name_too(tmp_path: Path, model_type: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    record = CapabilityRecord("transcription", "default", model_type, 0)
    assert make_transcription_adapter("hears", tmp_path, record) is not None
