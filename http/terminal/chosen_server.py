"""The server that a command uses, and the descriptions of its models."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

import attrs
import httpx2

from greenroom.http.settings.sources import environment_key
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.listen_address import UNIX

_SECONDS = 5.0  # Seconds in which a server on this machine says which models it has


@attrs.frozen
class ChosenServer:
    """A server, and the model that a command uses there.

    Args:
        url: Base URL without `/v1`, or `unix:/PATH` for a Unix socket.
        key: API key; None to send that of the environment, if there is one.
        drops_oldest: True if it leaves out the oldest turns of a chat that is too long.
        sets_length: True if the server's settings limit the length of answers, so that a chat sends no limit.
        verifies: True if its certificate must be trusted. A server found on this machine is an exception: a
            locked file of the same user names its address.
    """

    url: str
    model: str
    key: str | None = attrs.field(default=None, repr=False)
    drops_oldest: bool = False
    sets_length: bool = False
    verifies: bool = True

    @property
    def base(self) -> str:
        """Base URL of requests; the name that it has for a Unix socket is never looked up."""
        return base_of(self.url)

    @property
    def headers(self) -> dict[str, str]:
        return headers_for(self.key)

    @property
    def trusts_environment(self) -> bool:
        """True if requests may use the proxies of the environment; False for a server on this machine."""
        return self.key is None and not self.drops_oldest

    def gone(self, error: Exception) -> Problem:
        """Return the problem of a server that does not answer, or stops amid an answer."""
        reason = str(error) or type(error).__name__
        return Problem(503, "unreachable", f"{self.url} does not answer: {reason}")


def refusal(status: int, body: bytes) -> Problem:
    """Return the problem in a server's own words."""
    try:
        detail = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        detail = body.decode("utf-8", "replace")[:500] or f"HTTP status {status}"
    return Problem(status, "refused", str(detail))


def headers_for(key: str | None) -> dict[str, str]:
    """Return the headers with an API key, or with that of the environment."""
    return {"Authorization": f"Bearer {key or environment_key('OPENAI_API_KEY') or 'none'}"}


def base_of(url: str) -> str:
    return "http://localhost" if url.startswith(UNIX) else url


def socket_path(url: str) -> str | None:
    """Return the path of the Unix socket in `unix:/PATH`; None for any other URL."""
    return os.path.expanduser(url.removeprefix(UNIX)) if url.startswith(UNIX) else None


class ServedModels:
    """The models of a server, asked while nothing else runs.

    Args:
        url: Base URL without `/v1`, or `unix:/PATH`.
        verifies: True if its certificate must be trusted.

    Raises:
        httpx2.HTTPError: The methods raise it if the server cannot be asked, or refuses.
    """

    def __init__(self, url: str, key: str | None = None, *, verifies: bool = True) -> None:
        self._http = httpx2.Client(
            base_url=base_of(url),
            headers=headers_for(key),
            timeout=_SECONDS,
            transport=httpx2.HTTPTransport(verify=verifies, trust_env=False, uds=socket_path(url)),
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def named(self, name: str) -> Mapping[str, Any] | None:
        return self._answer("GET", f"/v1/models/{quote(name)}", None)

    def in_folder(self, folder: str) -> Mapping[str, Any] | None:
        shown = self._answer("POST", "/api/show", {"model": folder})
        return None if shown is None else self.named(str(shown["model_info"]["general.basename"]))

    def first_of(self, kinds: Collection[str]) -> Mapping[str, Any] | None:
        """Return the description of the default model, or else of the first of a kind."""
        default = self.named("default")
        if default is not None and default.get("type") in kinds:
            return default
        listed = (self._answer("GET", "/v1/models", None) or {}).get("data", ())
        return next((model for model in listed if model.get("type") in kinds), None)

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any] | None:
        answer = self._http.request(method, path, json=body)
        if answer.status_code == 404:
            return None
        if not answer.is_success:
            told = refusal(answer.status_code, answer.content).detail
            raise httpx2.HTTPStatusError(told, request=answer.request, response=answer)
        document = answer.json()
        if not isinstance(document, dict):
            raise httpx2.DecodingError("its answer is no JSON object", request=answer.request)
        return document


def chosen(url: str, listed: Mapping[str, Any], key: str | None = None) -> ChosenServer:
    """Return the server with one of the models that it lists."""
    length = listed.get("settings", {}).get("max_tokens", {}).get("value")
    return ChosenServer(
        url, str(listed["id"]), key, drops_oldest="settings" in listed, sets_length=length is not None
    )
