"""Everything an operator can set, with its default, in this one place.

Read from a TOML file, `GREENROOM_*` variables and command-line flags by `greenroom.http.settings_sources`.
"""

from __future__ import annotations

from typing import Literal

import attrs

MEGABYTE = 1024 * 1024


@attrs.frozen
class Settings:
    """How a Greenroom system runs.

    Args:
        models: Hub ids or local folders, in the order in which they are listed; the first is `default`.
        host: Address to listen on.
        port: TCP port; 0 picks a free one.
        max_models: Models kept loaded at once.
        max_batch: Requests that one model generates for at once.
        max_queue: Requests that may wait for one model before the next is refused.
        device: Where models compute.
        dtype: Type of unquantised weights; `auto` keeps the file's.
        max_context: Upper bound on every model's context, in tokens.
        tool_injection: Describe tools in the prompt when a model's template cannot; off means 400.
        trust_remote_code: Let a model's folder run its own Python code.
        grace: Seconds that a shutdown may take, whatever hangs.
        log_format: `console` for people, `json` for machines.
        log_level: Least severe level that is logged; prompts and answers appear at debug only.
        allowed_hosts: Host names that requests may be addressed to, besides this machine's own.
        allowed_origins: Web origins whose pages may call the server.
        max_body: Largest request body, in bytes.
        max_connections: Connections open at once.
        keep_alive: Seconds after which an idle connection is closed.
        temperature, top_p, top_k, min_p, max_tokens: Generation defaults above the model's own.
    """

    models: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    max_models: int = 2
    max_batch: int = 32
    max_queue: int = 256
    device: Literal["auto", "cpu", "gpu"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_context: int | None = None
    tool_injection: bool = True
    trust_remote_code: bool = False
    grace: float = 30.0
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body: int = 32 * MEGABYTE
    max_connections: int = 1024
    keep_alive: float = 60.0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
