"""What a model can do, as lists of models say it where their protocol has no words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.schemas.capabilities import CapabilityRecord, ModelType

_OUTPUTS: Mapping[ModelType, str] = {
    "text": "text",
    "vision": "text",
    "embeddings": "embedding",
    "rerank": "score",
    "speech": "audio",
    "transcription": "text",
}


def capability_summary(record: CapabilityRecord) -> dict[str, Any]:
    """Return a record in plain words; what a model's kind does not have is left out.

    `inputs` has what can be sent; `video` tells of a model's own sense, which is not served.
    """
    summary: dict[str, Any] = {
        "type": record.model_type,
        "inputs": [sense for sense in record.inputs if sense != "video"],
        "outputs": [_OUTPUTS[record.model_type]],
        "context_length": record.context,
    }
    match record.model_type:
        case "vision":
            summary |= {"multi_image": record.multi_image, "video": "video" in record.inputs}
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
