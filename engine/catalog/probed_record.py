"""A detected record, corrected by the findings of a probe."""

from __future__ import annotations

from pathlib import Path

import attrs

from greenroom.engine.catalog.files.fingerprint import fingerprint
from greenroom.schemas.models.capabilities import PROBE_VERSION, CapabilityRecord, ProbedCapabilities


def with_findings(
    detected: CapabilityRecord, probed: ProbedCapabilities | None, folder: Path
) -> CapabilityRecord:
    """Return a model's record with what a probe has found, unless the findings are no longer valid.

    Findings are invalid for other files, by another version of the probe, and for another type of model, as
    of a vision model that the operator serves without vision.

    Args:
        detected: Record that the model's files suggest.
        folder: Folder of the model.
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
