"""Detection of embedding models and rerankers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.kinds.libraries import library_constant, library_folder, models_of, text_module
from greenroom.schemas.models.capabilities import ModelType

SENTENCE_TRANSFORMERS_FILES = ("config_sentence_transformers.json", "modules.json")
"""Files that only embedding models and rerankers have, whatever their architecture."""

_NAMED_RERANKER = re.compile(r"(?:^|[-_./])re-?rank(?:er)?(?:$|[-_.])", re.IGNORECASE)
_NAMED_CROSS_ENCODER = re.compile(r"cross-?encoder", re.IGNORECASE)
_NAMED_EMBEDDER = re.compile(r"(?:^|[-_./])embed(?:ding|dings|der)?(?:$|[-_.\d])", re.IGNORECASE)
"""Pattern of names of embedding models, for decoders without their sentence-transformers files."""

SAME_CODE: Mapping[str, str] = {"roberta": "xlm-roberta", "camembert": "xlm-roberta"}
"""Encoders that differ from another one only in their tokenizer."""

EXTRA_ENCODERS = frozenset({"llama_nemotron_vl"})
"""Architectures that need the optional package of the extra `embeddings`."""


@functools.cache
def embedding_modules() -> frozenset[str]:
    """Return the architectures and packages of libraries that only compute embeddings."""
    return EXTRA_ENCODERS.union(filter(_makes_vectors, models_of("mlx_vlm")))


def encoder_kind(folder: Path, config: Mapping[str, Any], architecture: str, name: str) -> ModelType | None:
    """Return the type of an embedding model or reranker; None for other models.

    Args:
        name: Name of the model.
    """
    module = SAME_CODE.get(architecture, architecture).replace("-", "_")
    encodes = module in embedding_modules()
    if not encodes and text_module(architecture) is None:
        return None
    if _ranks(folder, config, name):
        return "rerank"
    if encodes or has_sentence_transformers_config(folder):
        return "embeddings"
    headless = any(written.endswith("Model") for written in classes_of(config))
    embeds = headless or is_named_embedder(name)
    return "embeddings" if embeds and architecture in _decoders() else None


def is_classifier(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration names a class that scores whole texts."""
    return any(written.endswith("ForSequenceClassification") for written in classes_of(config))


def label_count(config: Mapping[str, Any]) -> int:
    """Return the number of a classifier's output labels."""
    count, labels = config.get("num_labels"), config.get("id2label")
    if isinstance(count, int) and not isinstance(count, bool):
        return count
    return len(labels) if isinstance(labels, dict) and labels else 1


def is_cross_encoder(folder: Path, config: Mapping[str, Any], name: str) -> bool:
    """Return whether a name or the files of sentence-transformers say that texts are read in pairs."""
    sentence = read_optional(folder / "config_sentence_transformers.json")
    marks = ("sentence_transformers", "sbert_ce_default_activation_function")
    marked = sentence.get("model_type") == "CrossEncoder" or any(mark in config for mark in marks)
    return marked or _NAMED_CROSS_ENCODER.search(name) is not None


def _ranks(folder: Path, config: Mapping[str, Any], name: str) -> bool:
    if is_classifier(config):
        return True
    sentence = read_optional(folder / "config_sentence_transformers.json")
    if sentence.get("model_type") == "CrossEncoder" or "sentence_transformers" in config:
        return True
    return is_named_reranker(name) and not (folder / "modules.json").exists()


def has_sentence_transformers_config(folder: Path) -> bool:
    return any((folder / file).exists() for file in SENTENCE_TRANSFORMERS_FILES)


def is_named_embedder(name: str) -> bool:
    """Return whether a model's name says that it makes vectors."""
    return _NAMED_EMBEDDER.search(name) is not None


def is_named_reranker(name: str) -> bool:
    """Return whether a model's name says that it ranks."""
    return _NAMED_RERANKER.search(name) is not None


def classes_of(config: Mapping[str, Any]) -> list[str]:
    written = config.get("architectures")
    return list(map(str, written)) if isinstance(written, list) else []


@functools.cache
def _decoders() -> frozenset[str]:
    """Return the generative architectures from which the libraries can also compute embeddings."""
    remapping: Mapping[str, str] = library_constant(
        "mlx_vlm", "embedding_loader.py", "EMBEDDING_MODEL_REMAPPING"
    )
    return frozenset(name for name in remapping if name in models_of("mlx_lm"))


@functools.cache
def _makes_vectors(module: str) -> bool:
    root = library_folder("mlx_vlm")
    folder = None if root is None else root / "models" / module
    if folder is None or not folder.is_dir():
        return False
    return any("EmbeddingOutput" in path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
