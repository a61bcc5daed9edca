"""Orpheus, a speech model whose configuration is that of a language model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from huggingface_hub import constants

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.spoken_requests import open_adapter, open_engine, run, samples_of, spoken
from greenroom.tests.support.models.tiny_orpheus import CODEC, make_tiny_orpheus, make_tiny_snac

SEED = 7


@pytest.fixture(scope="module")
def orpheus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_orpheus(tmp_path_factory.mktemp("orpheus") / "model")


@pytest.mark.deep
def test_the_codec_that_is_missing_is_named_then_found_and_it_speaks_as_the_library_does(
    orpheus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlx.core as mx

    record = detect(orpheus, name="mlx-community/orpheus-3b-0.1-ft-bf16")
    assert (record.model_type, record.architecture) == ("speech", "llama")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for module in ("mlx_audio.tts.models.llama", "mlx_audio.tts.models.llama.llama"):
        monkeypatch.delitem(sys.modules, module, raising=False)  # The module reads the codec on import.
    with pytest.raises(ProblemError, match=f"hf download {CODEC}") as caught:
        open_adapter(orpheus)
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "load_failed")
    make_tiny_snac(tmp_path)
    account = MemoryAccount()
    adapter, engine = open_adapter(orpheus), open_engine(orpheus, account)
    read: list[dict[str, Any]] = [
        cast("dict[str, Any]", mx.load(str(file)))
        for file in (orpheus / "model.safetensors", *tmp_path.rglob("model.safetensors"))
    ]
    assert account.statistics().weights == sum(tensor.nbytes for file in read for tensor in file.values())
    request = spoken("Hi there.", voice="tara")
    engine.submit(request, adapter.prepare_input(request))
    mx.random.seed(SEED)
    heard = samples_of(list(run(engine)))
    engine.close()
    assert account.statistics().weights == 0
    assert "mlx_audio.tts.models.llama.llama" not in sys.modules, "it keeps the codec"
    model = import_model_code("greenroom.engine.sound.speech.speech_engine").load_speaking_model(
        orpheus, "llama"
    )
    mx.random.seed(SEED)
    said = model.generate(text="Hi there.", voice="tara", stream=True, streaming_interval=0.32)
    own = np.concatenate([np.array(result.audio) for result in said])
    assert len(heard) > 0
    assert np.array_equal(heard, np.rint(np.clip(own, -1, 1) * 32767).astype("<i2"))
