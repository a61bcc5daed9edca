"""Tests that hostile and unsupported adapter folders are refused by name, and nothing of them is loaded."""

from __future__ import annotations

import json
import struct
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from greenroom.engine.lora.files import AdapterFiles, check_fit, open_folder, plain_path, read_header
from greenroom.schemas.messages.requests import AppliedAdapter
from greenroom.schemas.problems import ProblemError

Q = "model.layers.0.self_attn.q_proj"
MLX: dict[str, Any] = {"lora_parameters": {"rank": 4, "scale": 2.0}, "model": "base"}
PEFT: dict[str, Any] = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": 4, "lora_alpha": 8}


def pair(rank: int = 4, inputs: int = 16, outputs: int = 16, dtype: Any = np.float32) -> dict[str, Any]:
    return {
        f"{Q}.lora_a": np.ones((inputs, rank), dtype),
        f"{Q}.lora_b": np.ones((rank, outputs), dtype),
    }


def peft(rank: int = 4) -> dict[str, Any]:
    name = f"base_model.model.{Q}"
    return {
        f"{name}.lora_A.weight": np.ones((rank, 16), np.float32),
        f"{name}.lora_B.weight": np.ones((16, rank), np.float32),
    }


def write(folder: Path, config: Any, tensors: dict[str, Any] | None, name: str = "") -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    name = name or ("adapter_model.safetensors" if "peft_type" in config else "adapters.safetensors")
    if tensors is not None:
        save_file(tensors, folder / name)
    return folder


@pytest.mark.parametrize(
    ("config", "tensors", "reason"),
    [
        ({**MLX, "fine_tune_type": "dora"}, pair(), "DoRA"),
        ({**MLX, "fine_tune_type": "full"}, pair(), "full fine-tuning"),
        (MLX, {**pair(), f"{Q}.m": np.ones(4, np.float32)}, "DoRA"),
        ({"model": "base"}, pair(), "lora_parameters.scale"),
        ({**MLX, "lora_parameters": {"scale": float("nan")}}, pair(), "no scale"),
        ({**MLX, "lora_parameters": {"scale": 10**400}}, pair(), "no scale"),
        (MLX, pair(rank=300), "rank 300; at most 256"),
        (MLX, pair(dtype=np.int8), "number format 'I8'"),
        (MLX, pair(dtype=np.float64), "number format 'F64'"),
        (MLX, {f"{Q}.lora_a": np.ones((16, 4), np.float32)}, "only one of two"),
        (MLX, {**pair(), f"{Q}.lora_b": np.ones((5, 16), np.float32)}, "shapes"),
        (MLX, {f"{Q}.weight": np.ones((16, 16), np.float32)}, "no low-rank factor"),
        (MLX, {**pair(), "x" * 400: np.ones(1, np.float32)}, "names of more than"),
        (MLX, {}, "no low-rank factor"),
        (MLX, None, "no adapters.safetensors"),
        ({**PEFT, "peft_type": "PREFIX_TUNING"}, peft(), "peft_type"),
        ({**PEFT, "use_dora": True}, peft(), "DoRA"),
        ({**PEFT, "bias": "all"}, peft(), "bias"),
        ({**PEFT, "modules_to_save": ["lm_head"]}, peft(), "modules_to_save"),
        ({**PEFT, "alora_invocation_tokens": [7, 8]}, peft(), "alora_invocation_tokens"),
        ({**PEFT, "init_lora_weights": "pissa_niter_4"}, peft(), "changed weights"),
        ({**PEFT, "alpha_pattern": {"(a+)+$": 3}}, peft(), "regular expression"),
        ({**PEFT, "lora_alpha": 10**400}, peft(), "lora_alpha"),
        ({**PEFT, "lora_alpha": "8"}, peft(), "lora_alpha"),
        (PEFT, None, "no adapter_model.safetensors"),
        ([], pair(), "JSON object"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_the_reason(
    tmp_path: Path, config: Any, tensors: dict[str, Any] | None, reason: str
) -> None:
    folder = write(tmp_path / "hostile", config, tensors)
    with pytest.raises(ValueError, match=reason):
        read_header(folder)
    with pytest.raises(ProblemError) as refused:
        AdapterFiles(1 << 20).open(AppliedAdapter("hostile", str(folder)))
    assert refused.value.problem.code == "load_failed"
    assert "'hostile'" in refused.value.problem.detail
    assert str(tmp_path) not in refused.value.problem.detail


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def claim_much(file: Path) -> None:
    file.write_bytes(struct.pack("<Q", 1 << 60) + file.read_bytes()[8:])


def overlap(file: Path) -> None:
    header = json.dumps(
        {
            f"{Q}.lora_a": {"dtype": "F32", "shape": [1 << 40, 4], "data_offsets": [0, 16]},
            f"{Q}.lora_b": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
        }
    ).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))


def pickle(file: Path) -> None:
    file.with_name("adapter_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    file.unlink()


def device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("spoil", [truncate, claim_much, overlap, pickle, device])
def test_spoiled_weights_are_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = write(tmp_path / "hostile", MLX, pair())
    spoil(folder / "adapters.safetensors")
    for checked in (True, False):
        with pytest.raises(ValueError, match=r"adapters\.safetensors|bytes of its shape"):
            read_header(folder, checked=checked)


def test_weights_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "large", MLX, pair(inputs=4096))
    with pytest.raises(ValueError, match=r"adapters\.safetensors"):
        open_folder(folder, 10_000)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (pair(), ""),
        (pair(rank=256), ""),
        (pair(inputs=8), "8 inputs and 16 outputs"),
        ({name.replace("q_proj", "w_proj"): value for name, value in pair().items()}, "no layer"),
        ({name.replace("layers.0", "layers.7"): value for name, value in pair().items()}, "no layer"),
    ],
)
def test_an_adapter_is_compared_with_the_weights_of_its_base(
    tmp_path: Path, tensors: dict[str, Any], reason: str
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    save_file({f"{Q}.weight": np.ones((16, 16), np.float32)}, base / "model.safetensors")
    header = read_header(write(tmp_path / "adapter", MLX, tensors))
    if not reason:
        check_fit(header, base)
        return
    with pytest.raises(ValueError, match=reason):
        check_fit(header, base)


def test_an_opened_adapter_is_read_again_only_after_a_change(tmp_path: Path) -> None:
    folder, files = write(tmp_path / "adapter", MLX, pair()), AdapterFiles(1 << 20)
    first = files.open(AppliedAdapter("a", str(folder)))
    assert files.open(AppliedAdapter("b", str(folder), 0.5)) is first
    first.take()
    assert first.take() == (folder / "adapters.safetensors").read_bytes()
    (folder / "adapter_config.json").write_text(json.dumps({**MLX, "note": "changed"}))
    second = files.open(AppliedAdapter("a", str(folder)))
    assert second.digest != first.digest
    left = weakref.ref(second)
    del second
    assert left() is None
    (folder / "adapter_config.json").unlink()
    with pytest.raises(ProblemError):
        files.open(AppliedAdapter("a", str(folder)))
    with pytest.raises(ValueError, match=r"adapter_config\.json"):
        first.take()


@pytest.mark.parametrize(
    "path",
    ["model.layers.0.mlp.up_proj", "base_model.model.model.language_model.layers.0.mlp.up_proj"],
)
def test_paths_of_different_libraries_mean_the_same_layer(path: str) -> None:
    assert plain_path(path) == "layers.0.mlp.up_proj"
