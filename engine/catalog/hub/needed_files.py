"""Choice of the files that MLX needs from a repository, by the kind of its model."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path

from greenroom.engine.catalog.files.folder_contents import other_weights
from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.regular_files import limit_of
from greenroom.engine.catalog.hub.hub_cache import TOKENIZERS
from greenroom.engine.catalog.hub.repository import RemoteFile, Repository
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.problems import ProblemError, load_failed

_METADATA = (
    "*.json",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jsonl",
    "*.jinja",
)
"""File patterns of a model's metadata, except Python code; weight patterns depend on its type."""

_WEIGHTS = ("model*.safetensors",)
_ALL_WEIGHTS = ("*.safetensors", "*.npz", "*.model", "*.yaml")
"""Weight patterns of audio models, which have no naming rules and keep voices in subfolders."""
_WEIGHTS_BY_KIND: Mapping[ModelType, tuple[str, ...]] = {
    "embeddings": (*_WEIGHTS, "*_Dense/model.safetensors", "*_LayerNorm/model.safetensors"),
    "speech": _ALL_WEIGHTS,
    "transcription": _ALL_WEIGHTS,
}


def metadata_files(repository: Repository, trust_remote_code: bool = False) -> tuple[RemoteFile, ...]:
    """Return the files that tell what a model is, without weights.

    Files of a size that no library may read are left out.
    """
    patterns = (*_METADATA, "*.py") if trust_remote_code else _METADATA
    found = _matching(repository.files, patterns)
    return tuple(
        file for file in found if (limit := limit_of(Path(file.path).name)) is None or file.size <= limit
    )


def weight_files(
    repository: Repository, outline: Path, trust_remote_code: bool = False
) -> tuple[RemoteFile, ...]:
    """Return the weight files that a model needs.

    Args:
        outline: Folder with the model's metadata, and an empty file in place of each other file.

    Raises:
        ProblemError: 503 `load_failed`: the repository holds no usable model; the detail says why.
    """
    name = repository.hub_id
    kind = detect(outline, trust_remote_code, name).model_type
    files = _matching(repository.files, _WEIGHTS_BY_KIND.get(kind, _WEIGHTS))
    if kind not in ("speech", "transcription"):
        _check_text_model(repository, outline, files)
    elif not any(file.path.endswith((".safetensors", ".npz")) for file in files):
        raise _unusable(name, f"there are no weights in it{other_weights(outline)}")
    return files


def _check_text_model(repository: Repository, outline: Path, files: Sequence[RemoteFile]) -> None:
    """Check what a model with a tokenizer must have to count as complete.

    Raises:
        ProblemError: 503 `load_failed`.
    """
    name, names = repository.hub_id, {file.path for file in repository.files}
    if not files:
        raise _unusable(name, f"there are no weights (model*.safetensors) in it{other_weights(outline)}")
    if names.isdisjoint(TOKENIZERS):
        raise _unusable(name, "there is no tokenizer in it")
    shards = read_optional(outline / "model.safetensors.index.json").get("weight_map")
    if isinstance(shards, dict):
        missing = sorted({str(shard) for shard in shards.values()} - names)
        if missing:
            raise _unusable(name, f"it lacks '{missing[0][:80]}', which its index of weights names")


def _unusable(name: str, why: str) -> ProblemError:
    return ProblemError(load_failed(name, f"{why}.", lasting=True))


def _matching(files: Sequence[RemoteFile], patterns: Sequence[str]) -> tuple[RemoteFile, ...]:
    """Return the files whose paths match a pattern, where `*` also stands for slashes."""
    return tuple(
        file
        for file in files
        if not _is_hidden(file.path) and any(fnmatch.fnmatchcase(file.path, each) for each in patterns)
    )


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
