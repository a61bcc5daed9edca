"""Detection of encoders that do not compute one vector or one score for each text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.sentence_transformers_config import projects_tokens
from greenroom.engine.catalog.kinds.encoder_kinds import (
    classes_of,
    has_sentence_transformers_config,
    is_classifier,
    is_cross_encoder,
    is_named_embedder,
    is_named_reranker,
    label_count,
)

_LATE = frozenset(
    {"colbert", "colidefics3", "colmodernvbert", "colpali", "colqwen2", "colqwen2_5", "lfm2_colbert"}
)
"""Architectures of late interaction, as mlx-vlm and transformers name them."""

_LATE_CLASS = re.compile(r"(?:^|_|For)Col[A-Z]")
"""Pattern of the class names of late-interaction models: `ColPali`, `ColQwen2_5`, `HF_ColBERT`."""

_TWO_TOWERS = frozenset({"align", "altclip", "chinese_clip", "clip", "metaclip_2", "siglip", "siglip2"})
"""Architectures that embed images and texts in one space, but compare texts with each other poorly."""

_SEEING = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl"})
"""Architectures of vision models that also exist as embedding models of images and texts."""

_RELEVANT = re.compile(r"(?:is[ _-]?)?relevan(?:t|ce)|yes", re.IGNORECASE)
_SCORED = re.compile(r"(?:relevance[ _-]?)?score|similarity|rank(?:ing)?|logits?", re.IGNORECASE)
"""Pattern of the names that rerankers give to their only label."""
_UNNAMED = re.compile(r"(?:LABEL_)?\d+")
_LONGEST_LABEL = 40


def why_encoder_is_not_served(
    folder: Path, config: Mapping[str, Any], architecture: str, name: str
) -> str | None:
    """Return the purpose of an encoder that neither embeds nor ranks; None for any other model.

    Args:
        name: The model's id.
    """
    if _interacts_late(folder, config, architecture):
        return "it makes one vector per token (late interaction)"
    if architecture in _TWO_TOWERS:
        return "it compares images with texts"
    embeds = is_named_embedder(name) or has_sentence_transformers_config(folder)
    if architecture in _SEEING and embeds and not is_named_reranker(name):
        return "it makes vectors of texts and images"
    if any(
        written.endswith(("ForTokenClassification", "ForQuestionAnswering")) for written in classes_of(config)
    ):
        return "it marks words of a text"
    return _why_no_reranking(folder, config, name) if is_classifier(config) else None


def _interacts_late(folder: Path, config: Mapping[str, Any], architecture: str) -> bool:
    """Return whether texts are compared token by token (ColBERT), so that each has many vectors.

    Source: ColBERT (Khattab and Zaharia 2020). The files are those that Stanford's code and LightOn's PyLate
    write.
    """
    if architecture in _LATE or any(map(_LATE_CLASS.search, classes_of(config))):
        return True
    sentence = read_optional(folder / "config_sentence_transformers.json")
    if sentence.get("model_type") == "ColBERT" or sentence.get("similarity_fn_name") == "MaxSim":
        return True
    return projects_tokens(folder) or (folder / "artifact.metadata").is_file()


def _why_no_reranking(folder: Path, config: Mapping[str, Any], name: str) -> str | None:
    """Return a reason to refuse a classifier as a reranker; None if its labels can mean relevance.

    Classifiers of sentiment and entailment have two labels as well. So a model with two labels counts as a
    reranker only if its name says so, or one label means relevance.
    """
    count = label_count(config)
    if count > 2:
        return f"it sorts texts into {count} classes"
    labels = _labels(config)
    if is_named_reranker(name) or any(map(_RELEVANT.fullmatch, labels)):
        return None
    if count < 2:
        return None if is_cross_encoder(folder, config, name) else _why_no_score(config, labels)
    if not labels or all(map(_UNNAMED.fullmatch, labels)):
        return "it sorts texts into 2 classes, neither of which is named relevant in its config.json"
    return f"it sorts texts into 2 classes ({' and '.join(labels)})"


def _why_no_score(config: Mapping[str, Any], labels: Sequence[str]) -> str | None:
    """Return a reason to refuse a model with one label as a reranker; None if nothing speaks against it.

    Most rerankers leave their only label unnamed. So do models that rate single texts, but their
    configuration says that they were trained as regressions.
    """
    if any(not _UNNAMED.fullmatch(label) and not _SCORED.fullmatch(label) for label in labels):
        return f"it rates texts by one label ({labels[0]}), not by a query"
    if config.get("problem_type") == "regression":
        return "it rates texts by one number ('problem_type' is 'regression'), not by a query"
    return None


def _labels(config: Mapping[str, Any]) -> list[str]:
    labels = config.get("id2label")
    return [str(label)[:_LONGEST_LABEL] for label in labels.values()] if isinstance(labels, dict) else []
