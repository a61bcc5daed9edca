"""The part of a probe's record for which the model need not be asked."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.catalog.files.fingerprint import fingerprint
from greenroom.engine.loading.practical_context import practical_context
from greenroom.schemas.models.capabilities import CapabilityRecord, ProbedCapabilities
from greenroom.schemas.settings.settings import Settings


def known_capabilities(
    model: str, folder: Path, record: CapabilityRecord, settings: Settings, limit: int | None
) -> ProbedCapabilities:
    """Return a record with what a model's files and the memory tell, to which a probe adds its findings.

    Args:
        model: The model's own id.
        record: Record that the files suggest.
        settings: Settings of this model.
        limit: Bytes that all models may have together; None if unknown.
    """
    kind = record.model_type
    writes, sees, sounds = kind in ("text", "vision"), kind == "vision", kind in ("speech", "transcription")
    return ProbedCapabilities(
        model,
        kind,
        record.family,
        practical_max_tokens=practical_context(folder, record, settings, limit) if writes else None,
        supports_multi_image=record.multi_image if sees else None,
        supports_video=False if sees else None,  # none is served, whatever the model can see
        max_sequence_length=record.context if kind in ("embeddings", "rerank") else None,
        supports_tts=record.speaks if sounds else None,
        supports_stt=record.transcribes if sounds else None,
        files=fingerprint(folder),
    )
