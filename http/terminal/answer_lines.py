"""Lines of text in, and a server's embeddings or ranked documents out as lines of JSON."""

from __future__ import annotations

import base64
import os
import re
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import click
import httpx2
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.http.encoding.encoding import json_bytes, json_string, vector_json
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answer_sources import open_client, server_events
from greenroom.http.terminal.chosen_server import ChosenServer, refusal
from greenroom.http.terminal.streams import read_lines, try_print
from greenroom.schemas.events.events import Failed, PromptProgress
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.requests import EmbeddingInput

_PLACE = re.compile(r"`input(?:\[(\d+)\])?`")


async def embed_lines(server: ChosenServer, asked: EmbeddingInput, lines: Lines, console: Console) -> int:
    """Print a line of JSON for each text; return the exit status. Raises ClickException: A text cannot be
    read or embedded.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    done = 0
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with progress:
        task = progress.add_task("loading", total=lines.total)
        async with open_answers(server) as answers:
            while group := await trio.to_thread.run_sync(take_group, lines.lines, abandon_on_cancel=True):
                vectors = await _embed_group(answers, asked, group)
                if not await trio.to_thread.run_sync(_print, vectors, group, abandon_on_cancel=True):
                    return ExitStatus.FAILED
                done += len(group)
                progress.update(task, completed=group[-1].end, description=f"{done:,} texts")
    return ExitStatus.DONE


async def _embed_group(
    answers: ServerAnswers, asked: EmbeddingInput, group: Sequence[Line]
) -> Sequence[Vector]:
    """Return the vectors of some texts, in order."""
    body = {
        "model": answers.server.model,
        "input": [line.text for line in group],
        "encoding_format": "base64",
        **({"truncate": True} if asked.truncate else {}),
        **given(dimensions=asked.dimensions, input_type=asked.input_type, instruction=asked.instruction),
    }
    try:
        return await answers.read("/v1/embeddings", partial(_vectors, len(group)), json=body)
    except click.ClickException as error:
        raise click.ClickException(_named(error.message, group)) from error


def _vectors(count: int, document: Any) -> list[Vector]:
    found = {int(entry["index"]): base64.b64decode(entry["embedding"]) for entry in document["data"]}
    return [Vector(found[index], index) for index in range(count)]


def _print(vectors: Sequence[Vector], group: Sequence[Line]) -> bool:
    for vector, line in zip(vectors, group, strict=True):
        text, numbers = json_string(line.text), vector_json(vector)
        entry = b'{"index":%d,"text":%b,"embedding":%b}\n' % (line.index, text, numbers)
        if not try_print(entry.decode()):
            return False
    return True


def _named(detail: str, group: Sequence[Line]) -> str:
    """Return an error with the number of the text instead of its path in the request."""

    def name(place: re.Match[str]) -> str:
        return f"text {group[int(place[1] or 0)].index}"

    return _PLACE.sub(name, detail)


async def rank_lines(
    server: ChosenServer, query: str, instruction: str | None, lines: Lines, top: int | None, console: Console
) -> int:
    """Print a line of JSON for each document, best first; return the exit status. Raises ClickException: A
    document cannot be read or ranked.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    ranked: list[tuple[Line, float]] = []
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with progress:
        task = progress.add_task("loading", total=lines.total)
        async with open_answers(server) as answers:
            while group := await trio.to_thread.run_sync(take_group, lines.lines, abandon_on_cancel=True):
                documents = [line.text for line in group]
                body = {"model": server.model, "query": query, "documents": documents}
                body |= given(instruction=instruction)
                ranked += await answers.read("/v1/rerank", partial(_scores, group), json=body)
                ranked = sorted(ranked, key=lambda entry: (-entry[1], entry[0].index))[:top]
                read = f"{group[-1].index + 1:,} documents"
                progress.update(task, completed=group[-1].end, description=read)
    printed = await trio.to_thread.run_sync(_print_ranked, ranked, abandon_on_cancel=True)
    return ExitStatus.DONE if printed else ExitStatus.FAILED


def _scores(group: Sequence[Line], document: Any) -> list[tuple[Line, float]]:
    return [(group[int(entry["index"])], float(entry["relevance_score"])) for entry in document["results"]]


def _print_ranked(ranked: list[tuple[Line, float]]) -> bool:
    """Print documents; return whether stdout still has a reader."""
    for line, score in ranked:
        entry = {"index": line.index, "relevance_score": score, "text": line.text}
        if not try_print(f"{json_bytes(entry).decode()}\n"):
            return False
    return True


MAX_LINES = 1_024  # Largest number of texts per request
MAX_CHARACTERS = 4_000_000  # Characters at which a request takes no further texts


@attrs.frozen
class Line:
    """A text. `index`: position among all texts, from 0; `end`: amount of input up to its end, in the unit of
    `Lines.total`.
    """

    text: str
    index: int
    end: int


@attrs.frozen
class Lines:
    """Texts that are read lazily. `total`: amount of input, in texts or bytes; None if unknown."""

    lines: Iterator[Line]
    total: int | None


def lines_of(texts: Sequence[str]) -> Lines:
    """Return the texts of the command line, or the lines of stdin if the only text is `-`."""
    return _lines_of_stdin() if tuple(texts) == ("-",) else _lines_of_arguments(texts)


def _lines_of_arguments(texts: Sequence[str]) -> Lines:
    return Lines((Line(text, at, at + 1) for at, text in enumerate(texts)), len(texts))


def _lines_of_stdin() -> Lines:
    """Return the nonblank lines of stdin, with their total size in bytes if stdin is a file."""
    about = None if sys.stdin is None else os.fstat(sys.stdin.fileno())
    is_file = about is not None and stat.S_ISREG(about.st_mode)
    return Lines(_lines_with_text(), about.st_size if about is not None and is_file else None)


def _lines_with_text() -> Iterator[Line]:
    read = 0
    for index, (text, size) in enumerate(read_lines()):
        read += size
        if text.strip():
            yield Line(text, index, read)


def take_group(lines: Iterator[Line]) -> list[Line]:
    """Return the texts of the next request; none at the end."""
    group: list[Line] = []
    characters = 0
    for line in lines:
        group.append(line)
        characters += len(line.text)
        if len(group) == MAX_LINES or characters >= MAX_CHARACTERS:
            break
    return group


T = TypeVar("T")


@attrs.frozen
class ServerAnswers:
    """The answers of a server to the requests of one command. Raises ClickException: the methods raise it if
    the server refuses, does not answer, or stops.
    """

    server: ChosenServer
    _client: httpx2.AsyncClient

    async def read(self, path: str, read: Callable[[Any], T], **content: Any) -> T:
        """Return the result of `read` on an answer that is one JSON document. `content`: body of the request,
        as httpx2 takes it.
        """
        try:
            answer = await self._client.send(self._request(path, content))
            if answer.status_code != 200:
                raise click.ClickException(refusal(answer.status_code, answer.content).detail)
            return read(answer.json())
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise click.ClickException(self.server.gone(error).detail) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
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
