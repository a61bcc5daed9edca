"""Tests that our code leaves MLX's process-wide default device and switches alone."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.catalog.kind_detection import vision_module
from greenroom.engine.loading import devices
from greenroom.engine.sound.transcription.transcription_adapter import SINGLE_PASS
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.platforms.gpus import METAL, pretend_gpu

ROOT = Path(__file__).resolve().parents[3]
PROCESS_WIDE = re.compile(
    r"mx\.stream\(|StreamContext|set_default_(device|stream)\(|(dis|en)able_compile\(|"
    r"set_(wired|cache|memory)_limit\("
)
"""Calls with process-wide effects; `mx.stream` too sets the default device for all threads until it exits."""

OWN_LOOP = "a loop that generates: we have our own"
OTHER_TASK = "makes or hears something that we do not serve"
TRAINING = "trains or converts"
SAME_DEVICE = "its streams are of the device that was the default at its import, so it sets what is set"

KNOWN: Mapping[str, str] = {
    "mlx_audio/dsp.py": "mel filters in float64, for three architectures that hear and are not served",
    "mlx_audio/lm/generate.py": f"served models that hear use it; {SAME_DEVICE}",
    "mlx_audio/server_inference.py": OWN_LOOP,
    "mlx_audio/sts/models/sam_audio/model.py": OTHER_TASK,
    "mlx_audio/sts/voice_pipeline.py": OTHER_TASK,
    "mlx_audio/stt/models/granite_speech/speculative.py": f"for a granite_speech that drafts; {SAME_DEVICE}",
    "mlx_audio/stt/utils.py": "GLM-ASR sets the wired limit while it hears, to the value that we set",
    "mlx_lm/evaluate.py": OTHER_TASK,
    "mlx_lm/generate.py": f"only the bench's bare loops use it; {SAME_DEVICE}",
    "mlx_lm/quant/gptq.py": TRAINING,
    "mlx_lm/share.py": "a command that spreads files over machines",
    "mlx_lm/utils.py": "`pipeline_load` and the commands of the library",
    "mlx_vlm/generate/ar.py": OWN_LOOP,
    "mlx_vlm/generate/audio.py": OWN_LOOP,
    "mlx_vlm/generate/common.py": OWN_LOOP,
    "mlx_vlm/generate/diffusion.py": OWN_LOOP,
    "mlx_vlm/models/deepseek_v41/engram.py": "replaced by engine/vision/vision_language_model.py",
    "mlx_vlm/models/minimax_h3/audio_vae.py": OTHER_TASK,
    "mlx_vlm/models/minimax_h3/packing.py": OTHER_TASK,
    "mlx_vlm/models/minimax_h3/processing.py": OTHER_TASK,
    "mlx_vlm/models/minimax_h3/references.py": OTHER_TASK,
    "mlx_vlm/models/minimax_h3/transformer.py": OTHER_TASK,
    "mlx_vlm/speculative/dflash.py": OWN_LOOP,
    "mlx_vlm/speculative/eagle3.py": OWN_LOOP,
    "mlx_vlm/speculative/mtp.py": OWN_LOOP,
    "mlx_vlm/trainer/common/metrics.py": TRAINING,
    "mlx_vlm/trainer/vlm/orpo/trainer.py": TRAINING,
    "mlx_vlm/trainer/vlm/sft/trainer.py": TRAINING,
}


def _home(library: str) -> Path:
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def test_every_place_of_the_libraries_that_changes_them_is_known() -> None:
    found = set[str]()
    for library in ("mlx_lm", "mlx_vlm", "mlx_audio"):
        home = _home(library)
        for file in home.rglob("*.py"):
            path = file.relative_to(home.parent)
            if "tests" not in path.parts and PROCESS_WIDE.search(file.read_text(encoding="utf-8")):
                found.add(path.as_posix())
    assert found == KNOWN.keys()


def test_the_reasons_hold() -> None:
    assert vision_module("minimax_h3") is None
    hearing = _home("mlx_audio") / "stt" / "models"
    precise = {
        file.relative_to(hearing).parts[0]
        for file in hearing.rglob("*.py")
        if re.search(r"mel_filters\([^)]*precise=True|precise=True,$", file.read_text(), re.MULTILINE)
    }
    assert {"moss_music"} <= precise
    assert not precise & {"whisper", *SINGLE_PASS}
    speaking = [*(hearing.parents[1] / "tts").rglob("*.py"), *(hearing.parents[1] / "codec").rglob("*.py")]
    assert not [
        file for file in speaking if "mel_filters(" in (text := file.read_text()) and "precise=True" in text
    ]


def test_our_own_code_changes_the_default_device_once_and_nothing_else() -> None:
    changing = {
        file.relative_to(ROOT).as_posix()
        for room in ("engine", "actors", "http", "schemas")
        for file in (ROOT / room).rglob("*.py")
        if re.search(r"^[^#\n\"`]*(" + PROCESS_WIDE.pattern + ")", file.read_text(), re.MULTILINE)
    }
    assert changing == {"engine/loading/devices.py"}


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Default devices set by a process on a machine with a GPU."""
    return pretend_gpu(monkeypatch, METAL)[0]


def test_the_first_model_decides_where_all_compute(chosen: list[Any]) -> None:
    devices.use_device(Settings())
    devices.use_device(Settings(device="gpu"))
    with pytest.raises(ProblemError, match="computes on the gpu since its first model") as refused:
        devices.use_device(Settings(device="cpu"))
    assert refused.value.problem.status == 503
    assert chosen == [mx.Device(mx.gpu)]


def test_a_cpu_that_was_asked_for_stays(chosen: list[Any]) -> None:
    devices.use_device(Settings(device="cpu"))
    devices.use_device(Settings())
    with pytest.raises(ProblemError, match="computes on the cpu"):
        devices.use_device(Settings(device="gpu"))
    assert chosen == [mx.Device(mx.cpu)]
