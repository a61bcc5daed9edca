"""Requests of commands to a server; what goes wrong with them ends the command."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import attrs
import click
import httpx2

from greenroom.http.terminal.answer_sources import open_client, server_events
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.schemas.events.events import Failed, PromptProgress

T = TypeVar("T")


@attrs.frozen
class ServerAnswers:
    """The answers of a server to the requests of one command.

    Raises:
        ClickException: The methods raise it if the server refuses, does not answer, or stops.
    """

    server: ChosenServer
    _client: httpx2.AsyncClient

    async def read(self, path: str, read: Callable[[Any], T], **content: Any) -> T:
        """Return the result of `read` on an answer that is one JSON document.

        Args:
            content: Body of the request, as httpx2 takes it.
        """
        try:
            answer = await self._client.send(self._request(path, content))
            if answer.status_code != 200:
                raise click.ClickException(self.server.refusal(answer.status_code, answer.content).detail)
            return read(answer.json())
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise click.ClickException(self.server.gone(error).detail) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.unreadable() from error

    async def stream(self, path: str, **content: Any) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield the documents of an answer of server-sent events."""
        try:
            response = await self._client.send(self._request(path, content), stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise click.ClickException(self.server.gone(error).detail) from error
        try:
            async with aclosing(server_events(response, self.server)) as documents:
                async for document in documents:
                    if isinstance(document, Failed):
                        raise click.ClickException(document.problem.detail)
                    yield document
        finally:
            await response.aclose()

    def unreadable(self) -> click.ClickException:
        """Return the error of an answer that another program has written."""
        return click.ClickException(
            f"{self.server.url} gives an answer that is not as OpenAI's servers write it"
        )

    def _request(self, path: str, content: Mapping[str, Any]) -> httpx2.Request:
        return self._client.build_request("POST", f"{self.server.base}{path}", **content)


@asynccontextmanager
async def open_answers(server: ChosenServer) -> AsyncIterator[ServerAnswers]:
    async with open_client(server) as client:
        yield ServerAnswers(server, client)


def progress_of(document: Mapping[str, Any]) -> PromptProgress | None:
    match document.get("prompt_progress"):
        case {"processed": int(processed), "total": int(total)}:
            return PromptProgress(processed, total)
    return None


def given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
