"""Paths that other servers have and this one lacks, with a sentence about the replacement here."""

from __future__ import annotations

from collections.abc import Mapping

_STATE = (
    "`/metrics` has figures for Prometheus, `/admin/status` the state of the server, `/api/ps` the loaded "
    "models, and the log the tokens and times of each request."
)
_REFERENCE = (
    "There is no page about the API, but `/openapi.json` describes it: it is OpenAI's under `/v1`, "
    "Anthropic's at `/v1/messages` and Ollama's under `/api`."
)
_PAGE = "There is no web page here: connect a client, or run `greenroom chat`."
_FILES = "No files are kept here: send them in the messages."
_ASSISTANTS = "Assistants are not served, but `/v1/responses` and `/v1/conversations` are."

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("/props", "/slots", "/stats", "/status"), _STATE),
    **dict.fromkeys(("/docs", "/redoc", "/swagger"), _REFERENCE),
    **dict.fromkeys(("/admin", "/chat", "/index.html", "/playground", "/ui"), _PAGE),
    **dict.fromkeys(("/v1/files", "/v1/uploads", "/v1/vector_stores"), _FILES),
    **dict.fromkeys(("/v1/assistants", "/v1/threads"), _ASSISTANTS),
    "/v1/batches": "There are no batches: send all requests at once, and they are computed together.",
    "/v1/fine_tuning": "No models are trained here.",
    "/v1/images": "No images are drawn here.",
    "/v1/moderations": "Texts are not moderated here.",
    "/v1/realtime": "Speech in real time is not served. A WebSocket is at `/v1/responses`.",
    "/v1/videos": "No videos are made here.",
    "/v2/chat": "Of Cohere's API, `/v2/rerank` is served. Chats are at `/v1/chat/completions`.",
}
"""By the whole path, or its first two segments."""

ABSENT = frozenset(_INSTEAD)
"""The paths of which it is known."""


def what_is_instead(path: str) -> str | None:
    """Return the sentence about a path that this server lacks on purpose; None for any other path."""
    whole = path.rstrip("/")
    return _INSTEAD.get(whole) or _INSTEAD.get("/".join(whole.split("/")[:3]))
