"""Encoders that yield neither an embedding nor a score are rejected, with their purpose named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.tests.support.models.tiny_sentence_files import write_dense

LATE = "it makes one vector per token (late interaction), which is not served here."
CLASSIFIER: dict[str, Any] = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a neutral name."""
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


def refusal(folder: Path, name: str = "", **config: Any) -> str:
    """Return the error of a model; an empty text if it is accepted."""
    (folder / "config.json").write_text(json.dumps(config))
    try:
        detect(folder, name=name)
    except ProblemError as error:
        return error.problem.detail.partition("could not be loaded: ")[2]
    return ""


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "colidefics3"},
        {"model_type": "colqwen2_5"},
        {"model_type": "colpali"},
        {"model_type": "lfm2_colbert"},
        {"model_type": "bert", "architectures": ["HF_ColBERT"]},
        {"model_type": "idefics3", "architectures": ["ColIdefics3"]},
        {"model_type": "qwen2_5_vl", "architectures": ["ColQwen2_5"]},
    ],
)
def test_late_interaction_is_known_by_its_architecture(folder: Path, config: dict[str, Any]) -> None:
    assert refusal(folder, **config) == LATE


@pytest.mark.parametrize("kind", ["bert", "lfm2"])
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", [{"type": "pylate.models.Dense.Dense", "path": "1_Dense"}]),
        ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Dense"}, {"type": "x.Pooling"}]),
        ("config_sentence_transformers.json", {"model_type": "ColBERT"}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "MaxSim"}),
        ("1_Dense/config.json", {"in_features": 64, "out_features": 32}),
        ("artifact.metadata", {}),
    ],
)
def test_late_interaction_is_known_by_its_files(folder: Path, kind: str, file: str, content: Any) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(content))
    assert refusal(folder, model_type=kind, hidden_size=64) == LATE


def test_a_colbert_of_pylate_is_not_served_as_one_pooled_vector(
    tiny_encoder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_encoder("bert"), tmp_path / "colbert")
    kinds = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    modules = [{"path": path, "type": kind} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    write_dense(folder / "1_Dense", 64, 32)
    with pytest.raises(ProblemError, match="late interaction"):
        open_embedder(folder)


def test_layers_behind_the_pooling_are_no_late_interaction(folder: Path) -> None:
    steps = ["Transformer", "Pooling", "Dense", "Normalize"]
    (folder / "modules.json").write_text(json.dumps([{"type": f"x.{step}"} for step in steps]))
    (folder / "2_Dense").mkdir()
    assert refusal(folder, model_type="bert", hidden_size=64) == ""


@pytest.mark.parametrize("broken", ["[1, null]", "{}", "[", '[{"type": 5}]'])
def test_broken_lists_of_modules_are_no_late_interaction(folder: Path, broken: str) -> None:
    (folder / "modules.json").write_text(broken)
    assert refusal(folder, model_type="bert", hidden_size=64) == ""


@pytest.mark.parametrize("kind", ["siglip", "siglip2", "clip", "chinese_clip"])
def test_two_towers_are_refused_by_what_they_are_for(folder: Path, kind: str) -> None:
    expected = "it compares images with texts, which is not served here."
    assert refusal(folder, model_type=kind, text_config={}, vision_config={}) == expected


def test_models_that_embed_what_they_see_are_no_chat_models(folder: Path) -> None:
    expected = "it makes vectors of texts and images, which is not served here."
    assert refusal(folder, "org/Qwen3-VL-Embedding-2B-4bit", model_type="qwen3_vl") == expected
    assert refusal(folder, "org/Qwen3-VL-2B-4bit", model_type="qwen3_vl") == ""
    (folder / "modules.json").write_text("[]")
    assert refusal(folder, "org/gme", model_type="qwen2_vl") == expected


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["NEGATIVE", "POSITIVE"], "it sorts texts into 2 classes (NEGATIVE and POSITIVE)"),
        (["entailment", "not_entailment"], "it sorts texts into 2 classes (entailment and not_entailment)"),
        (["LABEL_0", "LABEL_1"], "it sorts texts into 2 classes, neither of which is named relevant"),
        (["0", "1"], "it sorts texts into 2 classes, neither of which is named relevant"),
        (["x" * 99, "y"], f"it sorts texts into 2 classes ({'x' * 40} and y)"),
        (["a", "b", "yes"], "it sorts texts into 3 classes"),
        (["toxicity"], "it rates texts by one label (toxicity), not by a query"),
    ],
)
def test_classes_that_do_not_mean_relevance_are_no_ranking(folder: Path, labels: list[str], why: str) -> None:
    names = {str(number): label for number, label in enumerate(labels)}
    assert refusal(folder, **CLASSIFIER, id2label=names).startswith(why)


def test_two_classes_without_names_are_no_ranking(folder: Path) -> None:
    assert "neither of which is named relevant" in refusal(folder, **CLASSIFIER, num_labels=2)


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], ["irrelevant", "relevant"], ["Relevant", "Not_Relevant"], ["relevance"], ["LABEL_0"]],
)
def test_classes_that_mean_relevance_are_a_ranking(folder: Path, labels: list[str]) -> None:
    names = {str(number): label for number, label in enumerate(labels)}
    assert refusal(folder, **CLASSIFIER, id2label=names) == ""
    assert detect(folder).model_type == "rerank"


@pytest.mark.parametrize("labels", [["LABEL_0", "LABEL_1"], ["NEGATIVE", "POSITIVE"]])
def test_a_name_makes_two_classes_a_ranking(folder: Path, labels: list[str]) -> None:
    names = {str(number): label for number, label in enumerate(labels)}
    assert refusal(folder, "org/msmarco-reranker", **CLASSIFIER, id2label=names) == ""
    assert refusal(folder, "org/msmarco-classifier", **CLASSIFIER, id2label=names) != ""


@pytest.mark.parametrize(
    ("name", "says", "ranks"),
    [
        ("org/edu-classifier", {"problem_type": "regression"}, False),
        ("org/edu-classifier", {"problem_type": None}, True),
        ("org/bge-reranker-base", {"problem_type": "regression"}, True),
        ("cross-encoder/stsb-base", {"problem_type": "regression"}, True),
        ("org/m", {"problem_type": "regression", "sentence_transformers": {"version": "5"}}, True),
        ("org/m", {"id2label": {"0": "quality"}, "sbert_ce_default_activation_function": "x"}, True),
        ("org/m", {"id2label": {"0": "quality"}}, False),
        ("org/m", {"id2label": {"0": "Score"}}, True),
    ],
)
def test_one_label_is_a_ranking_if_the_configuration_does_not_say_otherwise(
    folder: Path, name: str, says: dict[str, Any], ranks: bool
) -> None:
    said = refusal(folder, name, **{**CLASSIFIER, "id2label": {"0": "LABEL_0"}, **says})
    assert (said == "") == ranks
    assert ranks or said.endswith("not by a query, which is not served here.")


def test_a_cross_encoder_of_sentence_transformers_is_a_ranking(folder: Path) -> None:
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "CrossEncoder"}))
    assert refusal(folder, **CLASSIFIER, problem_type="regression") == ""
