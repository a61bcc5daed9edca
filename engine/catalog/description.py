"""Description of a model from its files, without loading it."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

from greenroom.engine.catalog.entries import CatalogEntry
from greenroom.engine.catalog.files.fingerprint import folder_bytes
from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.regular_files import MAX_TEMPLATE_BYTES, open_regular, read_regular
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.engine.catalog.kinds.fill_in_the_middle import find_fill_format
from greenroom.engine.catalog.notices import notices_of
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import ProblemError

_HEAD = 256 * 1024
"""Bytes read from tokenizer files, whose beginnings list the tokens added to the vocabulary."""


def describe(
    entry: CatalogEntry, trust_remote_code: bool = False, *, allow_vision: bool = True
) -> ModelDescription:
    """Return the description of an entry; just its name and date if it is not downloaded yet."""
    if (folder := entry.folder) is None:
        return ModelDescription(entry.id, entry.created, model=entry.id, owned_by=entry.owned_by)
    try:
        record, problem = detect(folder, trust_remote_code, entry.id, allow_vision=allow_vision), None
    except ProblemError as error:
        record, problem = None, error.problem
    template = _template(folder)
    return ModelDescription(
        entry.id,
        entry.created,
        nbytes=folder_bytes(folder),
        record=record,
        problem=problem,
        parameters=_parameters(folder),
        quantization=_quantization(folder),
        template=template,
        describes_tools="tools" in template,
        supports_reasoning=_supports_reasoning(template),
        fills_gaps=find_fill_format(_added_tokens(folder)) is not None,
        generation=read_optional(folder / "generation_config.json"),
        notices=notices_of(folder, record) if record is not None else (),
        folder=str(folder),
        model=entry.id,
        owned_by=entry.owned_by,
    )


def _supports_reasoning(template: str) -> bool:
    return re.search(r"think|reasoning", template) is not None


def _template(folder: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return read_regular(folder / "chat_template.jinja", MAX_TEMPLATE_BYTES).decode("utf-8", "replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = read_optional(folder / name).get("chat_template")
        if isinstance(template, str):
            return template
    return ""


def _added_tokens(folder: Path) -> set[str]:
    """Return the tokens added to the vocabulary, as far as the beginnings of the files list them."""
    found: set[str] = set()
    for name in ("tokenizer_config.json", "tokenizer.json"):
        try:
            with open_regular(folder / name) as file:
                head = file.read(_HEAD).decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        for written in re.findall(r'"content":\s*("(?:[^"\\]|\\.){1,80}")', head):
            try:
                found.add(json.loads(written))
            except ValueError:
                continue
    return found


def _parameters(folder: Path) -> int | None:
    """Return the number of weights, if the index file states it as mlx-lm's converter does."""
    metadata = read_optional(folder / "model.safetensors.index.json").get("metadata")
    total = metadata.get("total_parameters") if isinstance(metadata, dict) else None
    return total if isinstance(total, int) else None


def _quantization(folder: Path) -> str:
    config = read_optional(folder / "config.json")
    quantization = config.get("quantization")
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    if isinstance(bits, int):
        return f"{bits}-bit"
    dtype = config.get("torch_dtype") or config.get("dtype")
    return dtype if isinstance(dtype, str) else ""
