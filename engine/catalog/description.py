"""Description of a model from its files, without loading it."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import attrs

from greenroom.engine.catalog.encoder_kinds import SENTENCE_TRANSFORMERS_FILES, classes_of
from greenroom.engine.catalog.families import find_fill_format
from greenroom.engine.catalog.folders import CatalogEntry
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.load_failures import find_adapter
from greenroom.engine.catalog.model_files import (
    MAX_TEMPLATE_BYTES,
    fingerprint,
    folder_bytes,
    open_regular,
    read_optional,
    read_regular,
)
from greenroom.engine.catalog.operator_texts import LARGEST_SHARE
from greenroom.engine.resources.device_memory import main_memory
from greenroom.schemas.models.capabilities import PROBE_VERSION, CapabilityRecord, ProbedCapabilities
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


def with_findings(
    detected: CapabilityRecord, probed: ProbedCapabilities | None, folder: Path
) -> CapabilityRecord:
    """Return a model's record with what a probe has found, unless the findings are no longer valid.

    Findings are invalid for other files, by another version of the probe, and for another type of model, as
    of a vision model that the operator serves without vision.
    """
    if probed is None or probed.probe_version != PROBE_VERSION or probed.model_type != detected.model_type:
        return detected
    if probed.files != fingerprint(folder):
        return detected
    vectors = detected.vectors
    if vectors is not None:
        vectors = attrs.evolve(
            vectors,
            dimensions=probed.embedding_dimensions or vectors.dimensions,
            normalized=vectors.normalized if probed.is_normalized is None else probed.is_normalized,
        )
    multi_image = detected.multi_image if probed.supports_multi_image is None else probed.supports_multi_image
    return attrs.evolve(
        detected,
        tool_parser=probed.tool_parser_id or detected.tool_parser,
        reasoning_parser=probed.thinking_parser_id or detected.reasoning_parser,
        multi_image=multi_image,
        vectors=vectors,
        probed=probed,
    )


_POOLING = "1_Pooling/config.json"


def notices_of(folder: Path, record: CapabilityRecord) -> tuple[str, ...]:
    """Return warnings about a model's folder, as sentences without a full stop; none if there are none."""
    notices: list[str] = []
    if (adapter := find_adapter(folder)) is not None:
        notices.append(
            f"the adapter beside its weights ({adapter}) is not applied: the answers are the base model's"
        )
    if record.model_type == "embeddings" and _only_fills_gaps(folder):
        notices.append(
            "it was trained to fill gaps in texts (a masked language model) and has no files of "
            "sentence-transformers: means of its tokens' vectors compare texts poorly"
        )
    weights = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    if record.model_type == "text" and weights > (most := main_memory() * LARGEST_SHARE):
        notices.append(
            f"its weights take {weights >> 20:,} MB, more than {LARGEST_SHARE:.0%} of this machine's memory "
            f"({int(most) >> 20:,} MB): long prompts may not fit beside them"
        )
    return tuple(notices)


def _only_fills_gaps(folder: Path) -> bool:
    """Return whether an encoder is only pretrained to fill gaps in texts, such as bert-base-uncased."""
    if any((folder / name).is_file() for name in (*SENTENCE_TRANSFORMERS_FILES, _POOLING)):
        return False
    classes = classes_of(read_optional(folder / "config.json"))
    return any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in classes)
