"""Settings of addresses, connections and uploads."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.setting_fields import MEGABYTE, setting


@attrs.frozen(slots=False)
class Network:
    """Settings of addresses, connections and uploads."""

    host: str = setting(
        "localhost",
        "Address to listen on; `localhost` is 127.0.0.1 and, where there is IPv6, ::1.",
    )
    port: int = setting(8000, "TCP port to listen on; 0 picks a free one.", low=0, high=65535)
    listen: tuple[str, ...] = setting(
        (), "Further addresses to listen on, as `HOST:PORT` or `unix:/PATH`; Ollama's port is 11434."
    )
    tls_certificate: str | None = setting(
        None, "File with a certificate chain (PEM), for https; SIGHUP reads it again."
    )
    tls_key: str | None = setting(None, "File with the certificate's key, if it is not in the same file.")
    api_key: str | None = setting(
        None,
        "API key that every request needs, with an operator's rights; its variable is "
        "GREENROOM_SERVER_API_KEY, and as a flag, `ps` shows it to everybody.",
        secret=True,
    )
    api_key_file: str | None = setting(None, "File with such a key.")
    open_loopback: bool = setting(
        False, "Let programs of this machine in without a key, except to operators' routes."
    )
    insecure: bool = setting(
        False, "Listen on other addresses than this machine's own although no key is needed."
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), "Host names that requests may use, besides this machine's own."
    )
    allowed_origins: tuple[str, ...] = setting((), "Web origins whose pages may call the server.")
    max_connections: int = setting(
        1024, "Connections open at once, if the process may have enough descriptors.", low=1
    )
    request_timeout: tuple[str, ...] = setting(
        (), "Longest time of a request, as `SECONDS` for all or `PATH=SECONDS` for one route."
    )
    idle_connection: float = setting(60.0, "Seconds after which an idle connection is closed.", above=0)
    max_body_bytes: int | None = setting(
        None,
        "Largest request body, in bytes (default: 80 MB with images or other files, else 32 MB).",
        low=1,
    )
    max_upload_bytes: int = setting(
        512 * MEGABYTE, "Largest file of a form, in bytes; it is kept on disk.", low=1
    )
    shutdown_timeout: float = setting(30.0, "Longest time of a shutdown, in seconds.", low=0, high=86400)
