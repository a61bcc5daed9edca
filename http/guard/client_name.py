"""A name for the client of a request, as far as a server that checks no keys can know it."""

from __future__ import annotations

from hashlib import blake2b

from werkzeug.datastructures import Headers


def client_name(headers: Headers, address: str | None) -> str:
    """Return a name for whoever sent a request, for fairness between clients.

    The address with the API key: behind a proxy all have one address, and placeholder keys (`EMPTY`, `none`)
    are shared by clients that have nothing to do with each other. The key itself is not kept.

    Args:
        headers: With the key as OpenAI's clients send it (`Authorization: Bearer …`), or Anthropic's
            (`x-api-key`).
        address: Of the peer, if it has one.
    """
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
    if not key:
        return address or ""
    return f"{address or ''}#{blake2b(key.encode(), digest_size=8).hexdigest()}"
