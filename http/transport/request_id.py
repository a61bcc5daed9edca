"""The id of a request."""

from __future__ import annotations

from uuid import uuid4


def new_request_id() -> str:
    """Return an id that the client, the logs and the actors call a request by."""
    return f"req_{uuid4().hex}"


def request_id_headers(request_id: str) -> dict[str, str]:
    """Return the headers that name the request of a response, for OpenAI's and for Anthropic's clients."""
    return {"x-request-id": request_id, "request-id": request_id}
