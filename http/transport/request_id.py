"""Request ids."""

from __future__ import annotations

from uuid import uuid4


def new_request_id() -> str:
    """Return a new request id for headers, logs and actor messages."""
    return f"req_{uuid4().hex}"


def request_id_headers(request_id: str) -> dict[str, str]:
    """Return the response headers with the request id, for both OpenAI's and Anthropic's clients."""
    return {"x-request-id": request_id, "request-id": request_id}
