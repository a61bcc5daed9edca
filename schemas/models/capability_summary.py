"""Summary of a model's capabilities, for protocols whose model lists define no such fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType

_OUTPUTS: Mapping[ModelType, str] = {
    "text": "text",
    "vision": "text",
    "embeddings": "embedding",
    "rerank": "score",
    "speech": "audio",
    "transcription": "text",
}


def capability_summary(record: CapabilityRecord) -> dict[str, Any]:
    """Return a JSON summary of a capability record, with the fields that apply to its model type.

    `inputs` lists what clients can send. `video` is false, since none is served, whatever the model can see.
    """
    summary: dict[str, Any] = {
        "type": record.model_type,
        "inputs": [sense for sense in record.inputs if sense != "video"],
        "outputs": [_OUTPUTS[record.model_type]],
        "context_length": record.context,
        "probed": record.probed is not None,
    }
    match record.model_type:
        case "vision":
            summary |= {"multi_image": record.multi_image, "video": False}
        case "embeddings" if (vectors := record.vectors) is not None:
            summary["dimensions"] = vectors.dimensions
            summary |= {"pooling": vectors.pooling, "normalized": vectors.normalized}
        case "speech":
            summary |= {"text_to_speech": record.speaks, "voices": list(record.voices)}
            del summary["context_length"]
        case "transcription":
            summary["speech_to_text"] = record.transcribes
            del summary["context_length"]
    return summary
