"""Greenroom as a library: the names that programs of your own need, in one place.

notes/api.md has each, and an example for every kind of model. What is not named here may move from one
version to the next.
Importing this loads no model library, and nothing of HTTP until `create_app` or `serve` is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from greenroom.actors.conversation import (
    ConversationOptions,
    ConversationResult,
    chat,
    converse,
    generate,
    run_conversation,
)
from greenroom.actors.requests.generation import Generation
from greenroom.actors.store.tables import ask_store
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.events.result_events import (
    AudioChunk,
    Score,
    Segment,
    ServerCall,
    ToolResult,
    ToolsListed,
    Vector,
)
from greenroom.schemas.messages.generation import GenerationParameters, Parameters, parameters
from greenroom.schemas.messages.messages import ImagePart, Message, TextPart, Tool, ToolCall, ToolChoice
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    RawInput,
    ScoreInput,
    SpeechInput,
    TraceContext,
    TranscriptionInput,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.pool_protocol import DescribePool, ModelStatus, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer

if TYPE_CHECKING:
    from greenroom.http.app import create_app, serve
else:

    def __getattr__(name: str) -> Any:
        if name not in ("create_app", "serve"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("greenroom.http.app"), name)


__all__ = [
    "Admitted",
    "AudioChunk",
    "ChatInput",
    "ConversationOptions",
    "ConversationResult",
    "DescribePool",
    "EmbeddingInput",
    "Failed",
    "Finished",
    "Generation",
    "GenerationParameters",
    "ImagePart",
    "InferenceEvent",
    "InferenceRequest",
    "Message",
    "ModelKey",
    "ModelState",
    "ModelStatus",
    "Parameters",
    "PoolStatus",
    "Problem",
    "ProblemError",
    "PromptProgress",
    "QueueStatus",
    "RawInput",
    "ReasoningDelta",
    "Score",
    "ScoreInput",
    "Segment",
    "ServerCall",
    "Settings",
    "SpeechInput",
    "System",
    "TextDelta",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolResult",
    "ToolServer",
    "ToolsListed",
    "TraceContext",
    "TranscriptionInput",
    "Usage",
    "Vector",
    "ask_store",
    "chat",
    "converse",
    "create_app",
    "generate",
    "open_system",
    "parameters",
    "run_conversation",
    "serve",
]
