"""A running server, found and asked by the commands of its operator."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from greenroom.http.settings.sources import KEY_VARIABLE, environment_key
from greenroom.schemas.settings.listen_address import UNIX
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    import httpx2

    from greenroom.http.process.runtime_file import RunningServer

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL = "http://localhost:8000"
CONNECT_SECONDS = 10.0
_STATUS_SECONDS = 5.0  # Time limit of a whole answer, which another program may send a byte at a time
_STATUS_BYTES = 1_000_000


def check_url(_ctx: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Return the address of a server without `/v1` at its end, or that of its Unix socket. Raises
    BadParameter: it is neither a URL nor `unix:/PATH`.
    """
    if text is None or text.startswith((f"{UNIX}/", f"{UNIX}~")):
        return text
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter(f"'{text}' is neither a URL such as {DEFAULT_URL} nor unix:/PATH")
    return text.rstrip("/").removesuffix("/v1")


NO_SOCKETS = "other programs cannot use a Unix socket: let the server listen on a port of this machine, too"


def check_client_url(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Return the address of a server for another program. Raises BadParameter: it is no URL, or that of a
    Unix socket.
    """
    if text is not None and text.startswith(UNIX):
        raise click.BadParameter(f"'{text}': {NO_SOCKETS}")
    return check_url(ctx, option, text)


def url_option(command: F) -> F:
    """Give a command the option `--url`, the address of the server."""
    option = click.option(
        "--url",
        callback=_choose_url,
        help=f"Address of the server, or unix:/PATH [default: a running one, {DEFAULT_URL}].",
    )
    return option(command)


def _choose_url(ctx: click.Context, option: click.Parameter, text: str | None) -> str:
    """Return the given address, else that of a server of this user, of several the one at the default."""
    given = check_url(ctx, option, text)
    return address_of_running() or DEFAULT_URL if given is None else given


def address_of_running() -> str | None:
    """Return the address of a server of this user, of several the one at the default; say whose it is.

    Returns:
        None if no server of this user runs.
    """
    from greenroom.http.process.runtime_file import running_servers

    found = [(address, server.pid) for server in running_servers() for address in server.addresses]
    if not found:
        return None
    # The default first, then the other URLs, which the messages of commands can be pasted from.
    address, pid = min(
        found, key=lambda each: (_place(each[0]) != _place(DEFAULT_URL), each[0].startswith(UNIX))
    )
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(f"greenroom: the server at {address} (process {pid})", err=True)
    return address


def _place(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL, or the path of a Unix socket; all names of loopback are one."""
    if url.startswith(UNIX):
        return "unix", url.removeprefix(UNIX), None
    parts = urlsplit(url)
    host = "localhost" if parts.hostname in ("127.0.0.1", "::1") else parts.hostname or ""
    return parts.scheme, host, parts.port


def running_server(url: str) -> RunningServer | None:
    """Return this user's server at a URL; None if none of its own runs there."""
    from greenroom.http.process.runtime_file import running_servers

    servers = running_servers()
    return next((each for each in servers if _place(url) in map(_place, each.addresses)), None)


class AdminClient:
    """A client of a server's `/admin`, with the key of the environment.

    Without one, a server of the same user on this machine takes the key of its runtime file.

    Attributes:
        url: Address of the server, or `unix:/PATH`.
    """

    def __init__(self, url: str) -> None:
        import httpx2

        from greenroom.http.terminal.chosen_server import base_of, socket_path

        self.url = url
        # A load or a drain may take long. Proxies of the environment would hide that we are on its machine.
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        own = running_server(url)
        key = environment_key() or (own.key if own is not None else "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A locked file of the same user names the address of its own server, whatever its certificate says.
        verify = own is None
        transport = httpx2.HTTPTransport(verify=verify, trust_env=False, uds=socket_path(url))
        self._http = httpx2.Client(
            base_url=base_of(url), timeout=timeout, trust_env=False, headers=headers, transport=transport
        )

    def status(self) -> Any:
        """Return the state of the server; None if nothing listens there. Raises ClickException: A server
        refuses, or is too slow. Raises ValueError: another program listens there.
        """
        import httpx2

        received, until = b"", time.monotonic() + _STATUS_SECONDS
        try:
            with self._http.stream("GET", "/admin/status", timeout=_STATUS_SECONDS) as response:
                for piece in response.iter_raw():
                    received += piece
                    if len(received) > _STATUS_BYTES or time.monotonic() > until:
                        raise ValueError("no answer of a server of ours")
            told = json.loads(received)
            if response.status_code == 200 and "version" in told:
                return told
            if "problem+json" in response.headers.get("content-type", ""):
                raise _refusal(response, told)
        except httpx2.ConnectError:
            return None
        except httpx2.TimeoutException as error:
            raise click.ClickException(f"what listens at {self.url} does not answer") from error
        except (httpx2.HTTPError, TypeError) as error:
            raise ValueError(str(error)) from error
        raise ValueError("no answer of a server of ours")

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, *, absent_ok: bool = False) -> Any:
        """Return the answer to a GET; None for a 404 with `absent_ok`. Raises ClickException: the server
        cannot be reached or refuses.
        """
        return self._answer("GET", path, None, absent_ok=absent_ok)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer to a POST. Raises ClickException: the server cannot be reached or refuses."""
        return self._answer("POST", path, body)

    def delete(self, path: str) -> Any:
        """Return the answer to a DELETE. Raises ClickException: the server cannot be reached or refuses."""
        return self._answer("DELETE", path, None)

    def stream(self, path: str, body: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield the names and documents of the events of an answer to a POST; to a GET without a body. Raises
        ClickException: the server cannot be reached, refuses, or stops.
        """
        import httpx2

        name, method = "", "GET" if body is None else "POST"
        try:
            with self._http.stream(method, path, json=body) as response:
                if response.is_error:
                    response.read()
                    raise _refusal(response)
                for line in response.iter_lines():
                    if line.startswith("event: "):
                        name = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        yield name, json.loads(line.removeprefix("data: "))
        except (httpx2.HTTPError, ValueError) as error:
            raise self._unreachable(error) from error

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, absent_ok: bool = False
    ) -> Any:
        import httpx2

        try:
            response = self._http.request(method, path, json=body)
            if absent_ok and response.status_code == 404:
                return None
            if response.is_error:
                raise _refusal(response)
            return response.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> click.ClickException:
        reason = str(error) or type(error).__name__
        return click.ClickException(f"no Greenroom server answers at {self.url}: {reason[:300]}")


def _refusal(response: httpx2.Response, document: Any = None) -> click.ClickException:
    try:
        problem = response.json() if document is None else document
        detail = str(problem["detail"])
        if str(problem.get("type")).endswith((":invalid_api_key", ":admin_key_required")):
            detail += f" Put an admin key into the environment variable {KEY_VARIABLE}."
    except (ValueError, TypeError, KeyError):
        detail = f"the server at {response.url} answers {response.status_code}"
    return click.ClickException(detail)


def hub_differs(url: str) -> str | None:
    """Return the variable by which the server at a URL fetches unlike this process; None if none does."""
    from greenroom.http.process.runtime_file import hub_environment

    if (server := running_server(url)) is None:
        return "another user or machine"
    named = dict(server.hub)
    differing = (name for name, value in hub_environment() if named.get(name, value) != value)
    return next((f"another {name}" for name in differing), None)


def find_server(url: str | None, settings: Settings, *, sure: bool = False) -> AdminClient | None:
    """Return a client of the server that a command is to use; None if none runs.

    Args:
        url: Address that was given; without one, a server of this user is meant, else that of the settings.
        sure: True to refuse if something at the port may be a server.

    Raises:
        ClickException: A server refuses, or does not answer.
    """
    if (chosen := url or address_of_running()) is not None:
        return AdminClient(chosen)
    client = AdminClient(f"http://127.0.0.1:{settings.port}")
    try:
        told = client.status()
    except (click.ClickException, ValueError) as error:
        if sure and not isinstance(error, ValueError):
            raise
        told = None
    if told is not None:
        return client
    client.close()
    return None
