"""Selection of adapter, engine and probe by model type; no other module chooses by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs

from greenroom.actors.engines.engine_protocol import Engine, ModelFolder, PromptAdapter
from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType, ProbedCapabilities
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.adapters.adapter import Adapter
    from greenroom.engine.probe.probe import Probe
    from greenroom.engine.resources.memory_account import MemoryAccount
    from greenroom.engine.resources.residence import ModelLoad, Residence
    from greenroom.engine.tokenizer.tokenizer import ChatTokenizer


def open_adapter(model: ModelFolder, settings: Settings, system_prompt: str) -> PromptAdapter:
    """Create the adapter that prepares a model's requests, on the calling thread. Raises ProblemError: the
    model cannot be used.
    """
    folder, record, name = model.folder, model.record, model.id
    _prepare_thread(record.model_type, settings)
    match record.model_type:
        case "text":
            from greenroom.engine.adapters.adapter import make_adapter

            return make_adapter(record, _tokenizer(model, settings), settings, system_prompt)
        case "vision":
            from greenroom.engine.vision.vision_adapter import open_vision_adapter

            tokenizer = _tokenizer(model, settings)
            return open_vision_adapter(folder, record, tokenizer, settings, system_prompt, name)
        case "embeddings":
            from greenroom.engine.encoding.embedding_adapter import make_embedding_adapter

            return make_embedding_adapter(name, record, _tokenizer(model, settings), settings.max_context)
        case "rerank":
            from greenroom.engine.encoding.rerank_adapter import open_rerank_adapter

            return open_rerank_adapter(folder, record, settings, name)
        case "speech":
            from greenroom.engine.sound.speech.speech_engine import open_speech_adapter

            return open_speech_adapter(folder, record, name)
        case "transcription":
            from greenroom.engine.sound.transcription.transcription_adapter import make_transcription_adapter

            return make_transcription_adapter(name, folder, record)


def open_engine(
    model: ModelFolder,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    account: MemoryAccount,
    adapter: PromptAdapter,
    residence: Residence | None = None,
) -> Engine[Any]:
    """Load a model's weights on the calling thread, which the engine then belongs to.

    Args:
        progress: Callback for the loaded fraction of the weights, 0 to 1.
        is_abandoned: Callback between chunks of the weights that returns whether to stop.
        adapter: Adapter of the model, from `open_adapter`; its thread continues to use it.
        residence: Measurements of the model's memory; new ones by default.

    Raises:
        ProblemError: 503 (`load_failed`), or 507 if the weights do not fit into memory.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    _prepare_thread(model.record.model_type, settings)
    from greenroom.engine.resources.residence import ModelLoad

    load = ModelLoad(model.folder, model.record, settings, progress, is_abandoned, account)
    if (ranks := settings.of_model(model.id).ranks or 1) > 1:
        from greenroom.engine.ranks.ranked_engine import open_ranked_engine

        return open_ranked_engine(load, model.id, ranks)
    if residence is not None:
        load = attrs.evolve(load, residence=residence)
    return _opening(model.record, adapter)(load)


def _opening(record: CapabilityRecord, adapter: PromptAdapter) -> Callable[[ModelLoad], Engine[Any]]:
    match record.model_type:
        case "text":
            from greenroom.engine.catalog.kind_detection import vlm_text_module
            from greenroom.engine.text.text_engine import open_text_engine

            if vlm_text_module(record.architecture) is None:
                return partial(open_text_engine, adapter=cast("Adapter", adapter))
            from greenroom.engine.vision.open_vision_engine import load_vision_lazily

            return partial(open_text_engine, adapter=cast("Adapter", adapter), load_lazily=load_vision_lazily)
        case "vision":
            from greenroom.engine.vision.open_vision_engine import open_vision_engine

            return partial(open_vision_engine, adapter=cast("Adapter", adapter))
        case "embeddings":
            from greenroom.engine.encoding.embedding_model import open_embedding_engine

            return open_embedding_engine
        case "rerank":
            from greenroom.engine.encoding.rerankers import open_rerank_engine

            return open_rerank_engine
        case "speech":
            from greenroom.engine.sound.speech.speech_engine import open_speech_engine

            return open_speech_engine
        case "transcription":
            from greenroom.engine.sound.transcription.transcription_engine import open_transcription_engine

            return open_transcription_engine


def open_probe(
    known: ProbedCapabilities, adapter: PromptAdapter, scratch: Path, max_tokens: int | None = None
) -> Probe:
    """Return the probe of a model, with its questions and the judgement of answers; on the adapter's thread.

    Args:
        adapter: Adapter from `open_adapter`.
        max_tokens: Longest answer in tokens; None for the probe's own limit.

    Raises:
        ProblemError: The model cannot be asked.
    """
    from greenroom.engine.probe import probes
    from greenroom.engine.probe.probe import probe_image

    match known.model_type:
        case "text" | "vision" as kind:
            image = probe_image() if kind == "vision" else None
            longest = max_tokens or probes.MAX_TOKENS
            return probes.open_text_probe(known, cast("Adapter", adapter), image, longest)
        case "embeddings":
            return probes.EmbeddingProbe(known)
        case "rerank":
            return probes.RerankProbe(known)
        case "speech":
            return probes.SpeechProbe(known)
        case "transcription":
            recording = scratch / "tone.wav"
            probes.write_recording(recording)
            return probes.TranscriptionProbe(known, recording)


def _prepare_thread(kind: ModelType, settings: Settings) -> None:
    """Import the libraries of a model type, and let folders bring code if settings allow it."""
    from greenroom.engine.loading import libraries
    from greenroom.engine.loading.load_model import allow_foreign_code

    allow_foreign_code(settings.trust_remote_code)
    match kind:
        case "vision":
            libraries.import_vision_libraries()
        case "embeddings" | "rerank":
            libraries.import_encoder_libraries()
        case "text" | "transcription":
            libraries.import_text_libraries()
        case "speech":
            pass  # imported once the model's architecture is known


def _tokenizer(model: ModelFolder, settings: Settings) -> ChatTokenizer:
    from greenroom.engine.catalog.operator_texts import chat_template_of
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer

    template = chat_template_of(model.id, settings)
    return load_tokenizer(model.folder, settings.trust_remote_code, model.id, template)
