"""Folders without a model or with unsupported weights are rejected with an error that names their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.description import describe
from greenroom.engine.catalog.folders import why_no_model
from greenroom.engine.catalog.kinds import detect
from greenroom.engine.catalog.model_files import check_tokenizer_files
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.schemas.problems import ProblemError

ADAPTER = "it holds an adapter (adapters.safetensors), which needs the model that it was trained for"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "its folder is empty: there is no config.json"),
        (("README.md",), "there is no config.json in its folder"),
        (
            ("q4.gguf", "README.md"),
            "there is no config.json in its folder; it holds GGUF (q4.gguf), which Greenroom does not read",
        ),
        (
            ("adapter_config.json", "adapters.safetensors"),
            f"there is no config.json in its folder; {ADAPTER}",
        ),
        (("model_index.json",), "it is a pipeline of diffusers (model_index.json), which is not served here"),
        (("training_args.bin",), "there is no config.json in its folder"),
        (
            (f"\x1b[2J{'x' * 200}.gguf",),
            "there is no config.json in its folder; it holds GGUF (?[2J"
            f"{'x' * 75}…), which Greenroom does not read",
        ),
    ],
)
def test_a_folder_without_a_model_is_named_by_what_it_holds(
    folder: Path, files: tuple[str, ...], why: str
) -> None:
    for name in files:
        (folder / name).touch()
    with pytest.raises(ProblemError) as refused:
        detect(folder)
    assert refused.value.problem.detail == f"The model 'm' could not be loaded: {why}."
    assert why_no_model(str(folder)) == f"'{folder}' holds no model: {why}"
    [entry] = Catalog((str(folder),), cache=folder / "none").entries()
    assert describe(entry).problem == refused.value.problem, "it is listed as unusable, with the reason"


@pytest.mark.parametrize(
    ("file", "holds"),
    [
        ("model.gguf", "; it holds GGUF (model.gguf), which Greenroom does not read"),
        ("weights.npz", "; it holds NumPy arrays (weights.npz), which Greenroom does not read"),
        (
            "pytorch_model.bin",
            "; it holds PyTorch's weights (pytorch_model.bin), which Greenroom does not read",
        ),
        ("vocab.txt", ""),
    ],
)
def test_weights_that_are_not_read_are_named(folder: Path, file: str, holds: str) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / file).touch()
    with pytest.raises(ValueError, match="no weights") as refused:
        check_weight_files(folder)
    assert str(refused.value) == f"there are no weights (model*.safetensors) in its folder{holds}"


def test_names_that_mean_no_folder_are_told_apart(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "q4.gguf").touch()
    assert why_no_model(str(tmp_path / "q4.gguf")) == (
        f"'{tmp_path}/q4.gguf' is a file, and a model is a folder with a config.json"
    )
    assert why_no_model("mlx-community") == (
        "there is no folder 'mlx-community' with a config.json (a hub id is OWNER/NAME)"
    )
    assert why_no_model("./nowhere") == "there is no folder './nowhere' with a config.json"
    assert why_no_model("mlx-community/Qwen3-4B-4bit") is None
    (folder / "config.json").touch()
    assert why_no_model(str(folder)) is None


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "spiece.model", "qwen.tiktoken", "vocab.txt", "tekken.json"]
)
def test_a_tokenizer_is_known_by_its_name(folder: Path, name: str) -> None:
    (folder / "model.safetensors").touch()
    with pytest.raises(ValueError, match="there is no tokenizer in its folder"):
        check_tokenizer_files(folder)
    (folder / name).touch()
    check_tokenizer_files(folder)
