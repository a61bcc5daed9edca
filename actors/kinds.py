"""Which code speaks for each kind of model: the only place that chooses by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenroom.actors.engine_protocol import Engine, ModelFolder, PromptAdapter
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.memory.account import MemoryAccount


def open_adapter(model: ModelFolder, settings: Settings, system_prompt: str) -> PromptAdapter:
    """Make the adapter that prepares a model's requests, on the calling thread.

    Args:
        system_prompt: Of conversations that come with none.

    Raises:
        ProblemError: The model cannot be used.
    """
    match model.record.model_type:
        case "text":
            return _open_text_adapter(model, settings, system_prompt)
        case "embeddings":
            return _open_embedding_adapter(model, settings)
        case "speech":
            from greenroom.engine.speech.open_speech_engine import open_speech_adapter

            return open_speech_adapter(model.folder, model.record, model.id)
        case "rerank":
            return _open_rerank_adapter(model, settings)
        case "transcription":
            from greenroom.engine.transcription.transcription_adapter import make_transcription_adapter

            return make_transcription_adapter(model.id, model.folder, model.record)
        case "vision":
            return _open_vision_adapter(model, settings, system_prompt)
        case _:
            raise ProblemError(_not_served(model))


def open_engine(
    model: ModelFolder,
    settings: Settings,
    progress: Callable[[float], None],
    abandoned: Callable[[], bool],
    account: MemoryAccount,
) -> Engine[Any]:
    """Load a model's weights; everything of the engine then belongs to the calling thread.

    Args:
        progress: Called with the fraction of the weights that are in memory, 0 to 1.
        abandoned: Called between chunks of the weights; returns whether to stop.
        account: Of memory, shared by all models of the process.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: `abandoned` returned True.
    """
    match model.record.model_type:
        case "text":
            return _open_text_engine(model, settings, progress, abandoned, account)
        case "embeddings":
            return _open_embedding_engine(model, settings, progress, abandoned, account)
        case "speech":
            from greenroom.engine.speech.open_speech_engine import open_speech_engine

            return open_speech_engine(model.folder, model.record, settings, progress, abandoned, account)
        case "vision":
            from greenroom.engine.loading.libraries import import_vision_libraries

            import_vision_libraries()
            from greenroom.engine.vision.open_vision_engine import open_vision_engine

            return open_vision_engine(model.folder, model.record, settings, progress, abandoned, account)
        case "rerank":
            return _open_rerank_engine(model, settings, progress, abandoned, account)
        case "transcription":
            from greenroom.engine.loading.libraries import import_text_libraries

            import_text_libraries()
            from greenroom.engine.open_transcription_engine import open_transcription_engine

            return open_transcription_engine(
                model.folder, model.record, settings, progress, abandoned, account
            )
        case _:
            raise ProblemError(_not_served(model))


def _open_text_adapter(model: ModelFolder, settings: Settings, system_prompt: str) -> PromptAdapter:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    from greenroom.engine.adapters.make_adapter import make_adapter
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(model.folder, settings.trust_remote_code, model.id)
    return make_adapter(model.record, tokenizer, settings, system_prompt)


def _open_vision_adapter(model: ModelFolder, settings: Settings, system_prompt: str) -> PromptAdapter:
    from greenroom.engine.loading.libraries import import_vision_libraries

    import_vision_libraries()
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer
    from greenroom.engine.vision.prompts.vision_adapter import open_vision_adapter

    tokenizer = load_tokenizer(model.folder, settings.trust_remote_code, model.id)
    return open_vision_adapter(model.folder, model.record, tokenizer, settings, system_prompt, model.id)


def _open_text_engine(
    model: ModelFolder,
    settings: Settings,
    progress: Callable[[float], None],
    abandoned: Callable[[], bool],
    account: MemoryAccount,
) -> Engine[Any]:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    from greenroom.engine.open_text_engine import open_text_engine

    return open_text_engine(model.folder, model.record, settings, progress, abandoned, account)


def _open_embedding_adapter(model: ModelFolder, settings: Settings) -> PromptAdapter:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    from greenroom.engine.embeddings.embedding_adapter import make_embedding_adapter
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(model.folder, settings.trust_remote_code, model.id)
    return make_embedding_adapter(model.id, model.record, tokenizer, settings.max_context)


def _open_embedding_engine(
    model: ModelFolder,
    settings: Settings,
    progress: Callable[[float], None],
    abandoned: Callable[[], bool],
    account: MemoryAccount,
) -> Engine[Any]:
    from greenroom.engine.loading.libraries import import_encoder_libraries

    import_encoder_libraries()
    from greenroom.engine.embeddings.open_embedding_engine import open_embedding_engine

    return open_embedding_engine(model.folder, settings, progress, abandoned, account)


def _open_rerank_adapter(model: ModelFolder, settings: Settings) -> PromptAdapter:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    from greenroom.engine.rerank.rerank_adapter import open_rerank_adapter

    return open_rerank_adapter(model.folder, model.record, settings, model.id)


def _open_rerank_engine(
    model: ModelFolder,
    settings: Settings,
    progress: Callable[[float], None],
    abandoned: Callable[[], bool],
    account: MemoryAccount,
) -> Engine[Any]:
    from greenroom.engine.loading.libraries import import_encoder_libraries

    import_encoder_libraries()
    from greenroom.engine.rerank.open_rerank_engine import open_rerank_engine

    return open_rerank_engine(model.folder, settings, progress, abandoned, account)


def _not_served(model: ModelFolder) -> Problem:
    detail = f"'{model.id}' is a model of another kind than this version serves ({model.record.model_type})."
    return Problem(501, "unsupported_model_type", detail, "model")
