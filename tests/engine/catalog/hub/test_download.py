"""Tests of downloads of models that the operator named."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.entries import CatalogEntry
from greenroom.engine.catalog.hub.download import download
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.servers.hub_server import hub_server


def found(catalog: Catalog, model: str) -> CatalogEntry:
    entry = catalog.find(model)
    assert isinstance(entry, CatalogEntry), entry
    return entry


FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "run_me.py": b"raise SystemExit",
    "photo.png": b"png",
}


def test_a_named_model_is_downloaded_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(("org/model",), cache=tmp_path)
    assert found(catalog, "org/model") == CatalogEntry("org/model", None, 0, "org", "org/model")
    with hub_server({"org/model": FILES}) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        folder = download("org/model", cache=tmp_path)
        assert {path.name for path in folder.iterdir()} == {
            "config.json",
            "tokenizer.json",
            "model.safetensors",
        }
        assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert any("model.safetensors" in path for path in asked)
        assert "run_me.py" in {path.name for path in download("org/model", True, tmp_path).iterdir()}
    entry = found(catalog, "org/model")
    assert entry.folder == folder
    assert entry.created > 0


SPEAKS = {
    "config.json": b'{"istftnet": {}, "plbert": {}}',
    "kokoro-v1_0.safetensors": b"weights",
    "voices/bella.safetensors": b"voice",
    "samples/hello.wav": b"sound",
}
EMBEDS = {
    "config.json": b'{"model_type": "bert"}',
    "modules.json": b"[]",
    "1_Pooling/config.json": b"{}",
    "2_Dense/model.safetensors": b"layer",
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "onnx/model.onnx": b"other",
    "openvino/model.safetensors": b"other",
}


@pytest.mark.parametrize(
    ("files", "unwanted"),
    [(SPEAKS, {"samples/hello.wav"}), (EMBEDS, {"onnx/model.onnx", "openvino/model.safetensors"})],
)
def test_each_kind_gets_the_files_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], unwanted: set[str]
) -> None:
    with hub_server({"org/model": files}) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        folder = download("org/model", cache=tmp_path)
    fetched = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert fetched == files.keys() - unwanted
    assert found(Catalog(("org/model",), cache=tmp_path), "org/model").folder == folder


@pytest.mark.parametrize(
    ("hub_id", "refusal"), [("org/unknown", (404, "model_not_found")), ("org/model", (503, "load_failed"))]
)
def test_a_download_that_fails_says_whether_the_hub_has_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_id: str, refusal: tuple[int, str]
) -> None:
    with hub_server({}) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address if hub_id == "org/unknown" else "http://127.0.0.1:9")
        with pytest.raises(ProblemError) as caught:
            download(hub_id, cache=tmp_path)
    problem = caught.value.problem
    assert (problem.status, problem.code) == refusal
    assert hub_id in problem.detail
    assert "\n" not in problem.detail
