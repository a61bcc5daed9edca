"""A well-behaved client in a separate process that logs its waits.

It writes a line of JSON for each chunk of a stream with the wait before it, for each answer of `/livez` that
took over `NOTED` seconds, for each broken stream, and for each time at which this process itself ran late,
which is not the server's fault.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from typing import Any

NOTED = 0.03
TOKENS = 400
EMPTY = b'"content":""'
"""Marker of chunks that open a stream or keep it alive: waiting for a slot is no stall."""
_TICK = 0.01
_printing = threading.Lock()


def _tell(kind: str, **values: Any) -> None:
    with _printing:
        print(json.dumps({"kind": kind, "at": time.monotonic(), **values}), flush=True)


def _follow_streams(port: int, model: str) -> None:
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "A calm sea"}],
            "stream": True,
            "temperature": 0,
            "max_tokens": TOKENS,
        }
    )
    while True:
        try:
            _follow_stream(port, body)
        except (OSError, http.client.HTTPException) as error:
            _tell("broken", detail=repr(error)[:200])
            time.sleep(0.05)


def _follow_stream(port: int, body: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        _tell("broken", detail=f"{response.status} {response.read(300)!r}")
        time.sleep(0.05)
        return
    before: float | None = None
    last = b""
    for line in response:
        if not line.startswith(b"data:"):
            continue
        last = line
        if EMPTY in line:
            continue
        now = time.monotonic()
        if before is not None:
            _tell("piece", gap=now - before)
        before = now
    if last.strip() != b"data: [DONE]":
        _tell("broken", detail=f"the stream ended with {last[:200]!r}")
    connection.close()


def _probe(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while True:
        began = time.monotonic()
        try:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()
        waited = time.monotonic() - began
        if waited > NOTED:
            _tell("probe", gap=waited)
        time.sleep(5 * _TICK)


def _watch_itself() -> None:
    before = time.monotonic()
    while True:
        time.sleep(_TICK)
        now = time.monotonic()
        if now - before > NOTED + _TICK:
            _tell("late", gap=now - before)
        before = now


def main(port: int, model: str) -> None:
    """Run until killed."""
    for watch in (_watch_itself, lambda: _probe(port)):
        threading.Thread(target=watch, daemon=True).start()
    _follow_streams(port, model)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
