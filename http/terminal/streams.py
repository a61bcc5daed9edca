"""Standard input and output of commands, files they write, and types of their options."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.shell_completion import CompletionItem

from greenroom.schemas.models.capabilities import ModelType

if TYPE_CHECKING:
    from greenroom.actors.core.ref import Ref
    from greenroom.schemas.protocols.pool_protocol import PoolMessage
    from greenroom.schemas.settings.settings import Settings


MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Limit on a text or line from stdin, in bytes: more than any model reads, but small enough for memory."""


def read_text() -> str:
    """Return the text on stdin. Raises UsageError: it is empty, too long, or not UTF-8."""
    if sys.stdin is None:
        raise click.UsageError("stdin is closed")
    try:
        data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"stdin: {error.strerror or error}") from error
    text = _decoded(data, "stdin").replace("\r\n", "\n")
    if not text.strip():
        raise click.UsageError("there is no text on stdin")
    return text


def read_lines() -> Iterator[tuple[str, int]]:
    """Yield the lines of stdin as they arrive, each with its size in bytes. Raises UsageError: A line is too
    long, or not UTF-8.
    """
    if sys.stdin is None:
        raise click.UsageError("stdin is closed")
    number = 0
    try:
        while data := sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1):
            number += 1
            yield _decoded(data, f"line {number} of stdin").rstrip("\r\n"), len(data)
    except OSError as error:
        raise click.UsageError(f"stdin: {error.strerror or error}") from error


_ALL_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_CONTROLS = {code: escaped for code, escaped in _ALL_CONTROLS.items() if chr(code) not in "\t\n\r"}


def for_terminal(text: str) -> str:
    """Return text from a model with control characters escaped, since a terminal would interpret them.

    A document in the prompt may make the model write sequences that set the clipboard or hide earlier output.
    """
    return text.translate(_CONTROLS)


def without_home(text: str) -> str:
    """Return text with `~` in place of the user's home folder."""
    home = os.path.expanduser("~")
    return re.sub(rf"(?<![\w.-]){re.escape(home)}(?![\w.-])", "~", text) if len(home) > 1 else text


def for_line(text: str) -> str:
    """Return text with line breaks and tabs escaped too: in a list, they would feign a line of the list."""
    return text.translate(_ALL_CONTROLS)


def try_print(text: str) -> bool:
    """Print text, escaped if stdout is a terminal; return whether stdout still has a reader. Raises
    ClickException: it is closed, or its disk is full.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed")
    if sys.stdout.isatty():
        text = for_terminal(text)
    try:
        try:
            print(text, end="", flush=True)
        except UnicodeEncodeError:  # a terminal whose encoding is not UTF-8
            print(text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding), end="", flush=True)
    except OSError as error:
        drop_output()
        if isinstance(error, BrokenPipeError):
            return False
        raise click.ClickException(f"standard output: {error.strerror or error}") from error
    return True


def drop_output() -> None:
    """Redirect stdout to the null device, so that Python does not fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _decoded(data: bytes, place: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise click.UsageError(f"{place} has more than {MAX_TEXT_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{place} is not UTF-8 from byte {error.start} on") from error


STDOUT = Path("-")  # Path that stands for standard output, as in other programs


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends, and is deleted if an exception ends it.

    Standard output, devices and pipes are written directly.

    Raises:
        ClickException: It cannot be written.
    """
    try:
        if path == STDOUT or (path.exists() and not path.is_file()):
            with _opened(path) as file:
                yield file
            return
        path = Path(os.path.realpath(path))
        part = path.with_name(f".greenroom-{uuid.uuid4().hex}.part")
        try:
            with part.open("x+b") as file:
                if path.exists():  # keep the permissions of a file that is replaced
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                yield file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        name = "standard output" if path == STDOUT else path
        raise click.ClickException(f"{name}: {error.strerror or error}") from error


def _opened(path: Path) -> BinaryIO:
    if path == STDOUT:
        if sys.stdout is None:
            raise OSError("it is closed")
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Without O_NONBLOCK, opening a pipe without a reader would block.
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


class _Model(click.types.StringParamType):
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return folders, and matching ids of models in the hub's cache."""
        ids = [hub_id for hub_id in ctx.obj.cached_ids() if hub_id.startswith(incomplete)]
        return [CompletionItem(incomplete, type="dir"), *map(CompletionItem, ids)]


MODEL = _Model()


class _Utf8Text(click.types.StringParamType):
    """Text in UTF-8; other bytes from the command line would reach a model as lone surrogates."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError as error:
            self.fail(f"not UTF-8 from character {error.start} on", param, ctx)
        return text


UTF8_TEXT = _Utf8Text()


class NumberRange(click.FloatRange):
    """A number within a range, without NaN, which click accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if math.isnan(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class _Recording(click.Path):
    """A seekable file: a pipe or device might never end."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_file():
            self.fail(f"'{path}' is not a regular file: save its content to one first.", param, ctx)
        return path


RECORDING = _Recording()


_CHAT = ("-N", "chat/completions", {"messages": [{"role": "user", "content": "Hello!"}], "stream": True}, "")
_BODIES: Mapping[ModelType, tuple[str, str, dict[str, Any], str]] = {
    "text": _CHAT,
    "vision": _CHAT,
    "embeddings": ("", "embeddings", {"input": "Hello!"}, ""),
    "rerank": ("", "rerank", {"query": "Who walks?", "documents": ["He walks.", "It rains."]}, ""),
    "speech": ("", "audio/speech", {"input": "Good morning."}, "-o morning.mp3"),
}


async def kind_of_default(pool: Ref[PoolMessage]) -> ModelType:
    """Return the type of the first model; `text` if it is not downloaded yet."""
    from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions

    found = await pool.ask(DescribeModel("default"), ModelDescriptions)
    record = found.models[0].record if isinstance(found, ModelDescriptions) else None
    return "text" if record is None else record.model_type


async def served_ids(pool: Ref[PoolMessage], settings: Settings) -> list[str]:
    """Return the ids of the operator's models for clients, or the demo model's if there are none."""
    from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions

    names = settings.models or ("default",)
    found = [await pool.ask(DescribeModel(name), ModelDescriptions) for name in names]
    known = [answer.models[0].id for answer in found if isinstance(answer, ModelDescriptions)]
    listed = await pool.ask(DescribeModel(None), ModelDescriptions) if settings.model_dir else None
    if isinstance(listed, ModelDescriptions):
        known += [model.id for model in listed.models if _is_inside(model.folder, settings.model_dir)]
    return list(dict.fromkeys(known))


def _is_inside(folder: str | None, parents: Iterable[str]) -> bool:
    if folder is None:
        return False
    path = Path(folder).resolve()
    return any(path.is_relative_to(Path(parent).expanduser().resolve()) for parent in parents)


def first_request(address: str, kind: ModelType) -> str:
    """Return a curl command that a model of that type answers under the name `default`."""
    if kind == "transcription":
        return f"curl {address}/v1/audio/transcriptions -F model=default -F file=@recording.wav"
    before, path, fields, behind = _BODIES[kind]
    body = json.dumps({"model": "default", **fields})
    header = "-H 'content-type: application/json'"
    words = ("curl", before, f"{address}/v1/{path}", header, f"-d '{body}'", behind)
    return " ".join(filter(None, words))
