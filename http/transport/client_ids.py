"""Ids that a client gives its own request, kept beside ours."""

from __future__ import annotations

import re
from typing import Any

import attrs
from werkzeug.datastructures import Headers

_NAMES = ("X-Client-Request-Id", "X-Request-Id")
"""Headers with a client's own request id: that of OpenAI's clients first, then that of proxies."""
LOG_FIELDS = "log_fields"
"""Key in the state of a request's scope: function that returns what the application knows, for the log."""
_IDENT = re.compile(r"[ -~]{1,128}")
_TRACE = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,200})?"
)


@attrs.frozen
class ClientIds:
    """Ids that a client gives its own request; wrong ones are ignored.

    Args:
        request_id: Its request id, of 1 to 128 printable ASCII characters; None without one.
        traceparent: Its place in a trace (W3C Trace Context, section 3.2); None without one.
    """

    request_id: str | None = None
    traceparent: str | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        """The ids as fields of log lines."""
        fields = {} if self.request_id is None else {"client_request_id": self.request_id}
        return fields if self.traceparent is None else {**fields, "trace_id": self.traceparent.split("-")[1]}

    @property
    def headers(self) -> dict[str, str]:
        fields = {} if self.request_id is None else {"x-client-request-id": self.request_id}
        return fields if self.traceparent is None else {**fields, "traceparent": self.traceparent}


def client_ids(headers: Headers) -> ClientIds:
    """Return the ids in the headers of a request."""
    named = next((value for name in _NAMES if _IDENT.fullmatch(value := headers.get(name, ""))), None)
    place = headers.get("traceparent", "")
    found = _TRACE.fullmatch(place)
    # Only later versions than 00 may have further fields.
    known = found is not None and not (found[1] == "00" and found[3])
    return ClientIds(named, place if known else None)


def log_fields_of(state: object) -> dict[str, Any]:
    """Return the log fields in a request's state: the client's ids, and what the application knows of it."""
    known = state if isinstance(state, dict) else {}
    ids, fields = known.get("client_ids"), known.get(LOG_FIELDS)
    return {**(ids.log_fields if isinstance(ids, ClientIds) else {}), **(fields() if fields else {})}
