"""Detection of embedding models and rerankers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.libraries import library_constant, library_folder, models_of, text_module
from greenroom.engine.catalog.model_files import read_optional
from greenroom.engine.catalog.sentence_transformers_config import projects_tokens
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
    return EXTRA_ENCODERS.union(filter(_makes_vectors, models_of("mlx_vlm")))


def encoder_kind(folder: Path, config: Mapping[str, Any], architecture: str, name: str) -> ModelType | None:
    """Return the type of an embedding model or reranker; None for other models."""
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


# Detection of encoders with code of their own, which the libraries would compute as another architecture.
#
# Generative models that name their own code (`auto_map`) still match the libraries' architecture. Encoders
# often do not: JinaBERT declares `bert` but has other positions, others turn off a decoder's causal mask.

_BASES: Mapping[str, str] = {
    "bert": "Bert",
    "camembert": "Camembert",
    "gemma3_text": "Gemma3(?:Text)?",
    "lfm2": "Lfm2(?:Bidirectional)?",
    "ministral3": "Ministral3",
    "modernbert": "ModernBert",
    "qwen3": "Qwen3",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
"""Prefixes of the class names of the supported architectures, as regular expressions."""


def own_encoder(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Return the class name of an encoder's own code if that is another architecture; None if it is not."""
    base, code = _BASES.get(architecture), config.get("auto_map")
    if base is None or not isinstance(code, dict):
        return None
    usual = re.compile(f"{base}(?:Model|For[A-Z][A-Za-z]*)")
    named = [str(value).rpartition(".")[2] for key, value in code.items() if str(key).startswith("AutoModel")]
    return next((name[:80] for name in named if usual.fullmatch(name) is None), None)


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
    """Return the purpose of an encoder that neither embeds nor ranks; None for any other model."""
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


_DRAWS = "it draws images"
_MARKS = "it marks what is in images"
_DECIDES = "it decides between answers that it is given"
_DIFFUSES = "it writes by diffusion, many tokens at once"

_PURPOSES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("bonsai", "ernie_image", "flux2", "flux3", "ideogram4", "llada_image", "mage_flow"),
            *("ming_image", "moss_image", "qwen_image", "z_image"),
        ),
        _DRAWS,
    ),
    **dict.fromkeys(
        (
            *("falcon_perception", "pp_doclayout_v3", "rfdetr", "rt_detr_v2", "sam3", "sam3_1"),
            *("sapiens2", "yolo11"),
        ),
        _MARKS,
    ),
    **dict.fromkeys(("clef", "d1", "d1_omni", "decider2", "laya"), _DECIDES),
    **dict.fromkeys(("llada2_moe", "nemotron_labs_diffusion"), _DIFFUSES),
    **dict.fromkeys(("gliner2_5", "openai_privacy_filter"), "it marks words of a text"),
    **dict.fromkeys(("moge3", "video_depth_anything"), "it measures depth in images"),
    **dict.fromkeys(("sam3d_body", "sam3d_objects"), "it makes three-dimensional shapes of images"),
    "dinov2": "it makes features of images",
    "lfm2_encoder": "it fills gaps in texts",
    "minimax_h3": "it makes videos",
    "nemotron_voicechat": "it turns speech into speech",
}
"""Purposes of models that are not served, by the name of their package in mlx-vlm."""

_CLASSES: Mapping[str, str] = {
    "BoundaryExtractor": "gliner2_5",
    "D1Model": "d1",
    "Lfm2BidirectionalForMaskedLM": "lfm2_encoder",
}
"""Packages by class name, for models whose `model_type` is that of another model. Source: mlx-vlm's
`get_model_type`."""

PURPOSES = frozenset(_PURPOSES)
"""Names of the packages of mlx-vlm whose models are not served and have a known purpose."""


def other_purpose(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Return the purpose of an unserved model of mlx-vlm, such as drawing; None for any other model."""
    code = config.get("auto_map")
    named = [str(value).rpartition(".")[2] for value in code.values()] if isinstance(code, dict) else []
    for written in (*classes_of(config), *named):
        if written in _CLASSES:
            return _PURPOSES[_CLASSES[written]]
    remapping: Mapping[str, str] = library_constant("mlx_vlm", "utils.py", "MODEL_REMAPPING")
    return _PURPOSES.get(remapping.get(architecture, architecture))
