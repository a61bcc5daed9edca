"""Warnings for the operator about served models that may not answer as expected."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.catalog.files.folder_contents import find_adapter
from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.kinds.encoder_kinds import SENTENCE_TRANSFORMERS_FILES, classes_of
from greenroom.engine.catalog.operator.vision import LARGEST_SHARE
from greenroom.engine.memory.device_memory import main_memory
from greenroom.schemas.models.capabilities import CapabilityRecord

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
