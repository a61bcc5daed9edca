"""Requests of commands to the operators' routes of a server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import httpx2

from greenroom.schemas.settings.settings import Settings

_ANSWERED_WITHIN = 2.0
"""Seconds in which a running server answers that it lives."""


class OperatorClient:
    """A client of a server's operators' routes.

    Args:
        url: Base URL of the server.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")

    def answers(self) -> bool:
        """Return whether a server is there that takes an operator's requests from here."""
        try:
            answer = httpx2.get(f"{self.url}/admin/status", timeout=_ANSWERED_WITHIN, trust_env=False)
            return answer.status_code == 200 and "version" in answer.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
            return False

    def check_absent(self) -> None:
        """Refuse to go on beside a server that is too busy, or about to end, so that it may use a model.

        Raises:
            ClickException: Something is there that may be a server.
        """
        try:
            answer = httpx2.get(f"{self.url}/admin/status", timeout=_ANSWERED_WITHIN, trust_env=False)
            there = "problem+json" in answer.headers.get("content-type", "")
        except (httpx2.ConnectError, httpx2.InvalidURL):
            there = False
        except httpx2.HTTPError:
            there = True
        if there:
            raise click.ClickException(f"a server at {self.url} does not answer: try again, or stop it first")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return the answer to a body.

        Raises:
            ClickException: The server refuses, or is gone.
        """
        try:
            answer = httpx2.post(f"{self.url}{path}", json=body, timeout=600, trust_env=False)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._gone(error) from error
        _check(answer)
        return answer.json()

    def events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of an answer; read them to their end.

        Raises:
            ClickException: The server refuses, or is gone.
        """
        timeout = httpx2.Timeout(60)
        try:
            with httpx2.stream(
                "POST", f"{self.url}{path}", json=body, timeout=timeout, trust_env=False
            ) as answer:
                if answer.status_code != 200:
                    answer.read()
                _check(answer)
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line[6:])
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._gone(error) from error

    def _gone(self, error: Exception) -> click.ClickException:
        return click.ClickException(f"{self.url}: {error or type(error).__name__}")


def find_server(url: str | None, settings: Settings) -> OperatorClient | None:
    """Return a client of the server that a command is to use; None if none runs.

    Args:
        url: URL that was given; None for the address of the settings.

    Raises:
        ClickException: No server answers at the URL that was given.
    """
    client = OperatorClient(url or f"http://127.0.0.1:{settings.port}")
    if client.answers():
        return client
    if url is not None:
        raise click.ClickException(f"no server that takes an operator's requests answers at {url}")
    return None


def _check(answer: httpx2.Response) -> None:
    """Refuse an answer that is a problem.

    Raises:
        ClickException: Its detail.
    """
    if answer.status_code == 200:
        return
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the server answers with status {answer.status_code}"
    raise click.ClickException(str(detail))
