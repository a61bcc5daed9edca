"""A conversation: interactive at a terminal, or one prompt and response through a pipe."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click
import trio
from rich.console import Console
from rich.status import Status
from rich.text import Text

from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answer_sources import AnswerSource, CannotShowError, read_shown_file
from greenroom.http.terminal.streams import for_line, for_terminal, try_print
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
)
from greenroom.schemas.messages.messages import ContentPart, Message, Role, TextPart

HELP = (
    "/image FILE shows an image or a PDF with the next line, /new starts a new conversation, /quit or Ctrl-D "
    "leaves, Ctrl-C stops an answer, /help says this again."
)
Shown = tuple[ContentPart, ...]
"""Images and documents that accompany a line of text."""


async def answer_once(answer: AnswerSource, prompt: str, instructions: str | None, shown: Shown = ()) -> int:
    """Print the response to `prompt`, and nothing else, to stdout; return the exit status. Raises
    ClickException: the request failed.
    """
    async with answer((*_opening_messages(instructions), _message("user", prompt, shown))) as events:
        async for event in events:
            match event:
                case TextDelta(text):
                    if not try_print(text):
                        return ExitStatus.FAILED
                case Failed(problem):
                    raise click.ClickException(problem.detail)
        try_print("\n")
    return ExitStatus.DONE


async def run_conversation(
    answer: AnswerSource, console: Console, instructions: str | None, shown: Shown = ()
) -> int:
    """Stream responses to lines typed at the terminal until the user leaves; return the exit status. `shown`:
    images and documents that accompany the first line.
    """
    history = _opening_messages(instructions)
    console.print(HELP, style="dim", highlight=False)
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` editing and history)
    while (line := _read_line(console)) is not None:
        if line == "/new":
            history, shown = _opening_messages(instructions), ()
        elif line.startswith("/image "):
            shown += _read_shown(line.removeprefix("/image "), console)
        elif line.startswith("/"):
            console.print(HELP, style="dim", highlight=False)
        elif line:
            asked = (*history, _message("user", line, shown))
            if text := await _stream_answer(answer, asked, console):
                history, shown = (*asked, _message("assistant", text)), ()
    return ExitStatus.DONE


def _read_line(console: Console) -> str | None:
    """Return the next line, or None when the user leaves.

    It blocks Trio, since nothing else runs while the user types, and Ctrl-C then works as usual.
    """
    try:
        with _interrupting():
            line = input(">>> ").strip()
        line.encode()
    except UnicodeError:  # only without readline, which drops invalid bytes
        console.print("That is not UTF-8.", style="red")
        return ""
    except (EOFError, KeyboardInterrupt, OSError):
        console.print()
        return None
    return None if line in ("/quit", "/exit", "/bye") else line


@contextmanager
def _interrupting() -> Iterator[None]:
    """Make signals interrupt blocking input; those other than Ctrl-C also run their usual handlers."""
    others = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        if callable(usual := others[signal.Signals(number)]):
            usual(number, frame)
        raise KeyboardInterrupt

    ctrl_c = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for number, usual in others.items():
            if callable(usual):
                signal.signal(number, on_signal)
        yield
    finally:
        signal.signal(signal.SIGINT, ctrl_c)
        for number, usual in others.items():
            signal.signal(number, usual)


async def _stream_answer(answer: AnswerSource, messages: tuple[Message, ...], console: Console) -> str:
    """Show a response as it arrives, until Ctrl-C stops it; return the text so far."""
    view = _AnswerView(console)
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel("Ctrl-C")

            nursery.start_soon(stop)
            with view:
                async with answer(messages) as events:
                    async for event in events:
                        view.show(event)
            nursery.cancel_scope.cancel("the answer is complete")
    return view.text


class _AnswerView:
    """Shows one response: a spinner at first, then dimmed reasoning and text, and finally token figures."""

    def __init__(self, console: Console) -> None:
        self.text = ""
        self._console = console
        self._status: Status = console.status("…")
        self._thinking = self._in_line = False
        self._dropped = 0
        self._began: float | None = None

    def __enter__(self) -> None:
        self._status.start()

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        if self._in_line:
            self._console.print()

    def show(self, event: InferenceEvent) -> None:
        match event:
            case QueueStatus(status="loading" | "downloading" as status, model=model):
                self._status.update(Text(for_line(f"{status} {model}")))  # brackets of a name are no markup
            case Admitted(dropped_messages=dropped):
                self._dropped = dropped
            case ReasoningDelta(text):
                self._write(text, thinking=True)
            case TextDelta(text):
                self.text += text
                self._write(text, thinking=False)
            case Finished(usage=usage):
                self._show_figures(usage.generated)
            case Failed(problem):
                self._status.stop()
                self._console.print(for_terminal(problem.detail), style="red", markup=False)

    def _write(self, text: str, *, thinking: bool) -> None:
        if self._began is None:
            self._began = time.monotonic()
            self._status.stop()
        if self._thinking and not thinking:
            self._console.print("\n")
        self._thinking, self._in_line = thinking, not text.endswith("\n")
        style = "dim italic" if thinking else None
        text = for_terminal(text)
        self._console.print(text, end="", style=style, markup=False, highlight=False, soft_wrap=True)

    def _show_figures(self, tokens: int) -> None:
        if self._began is not None and tokens > 1:
            rate = (tokens - 1) / max(time.monotonic() - self._began, 1e-6)
            self._console.print("\n" if self._in_line else "", end="")
            self._console.print(f"({tokens} tokens, {rate:.0f} tokens/s)", style="dim", highlight=False)
            self._in_line = False
        if self._dropped:
            text = (
                f"(the context is full: the oldest {self._dropped} messages are left out; /new starts anew)"
            )
            self._console.print(text, style="dim", highlight=False)


def _opening_messages(instructions: str | None) -> tuple[Message, ...]:
    return (_message("system", instructions),) if instructions else ()


def _message(role: Role, text: str, shown: Shown = ()) -> Message:
    return Message(role, (*shown, TextPart(text)))


def _read_shown(path: str, console: Console) -> Shown:
    try:
        return (read_shown_file(path.strip()),)
    except CannotShowError as problem:
        console.print(str(problem), style="red", markup=False)
        return ()
