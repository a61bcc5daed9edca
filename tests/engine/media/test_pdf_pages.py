"""Rendering of PDFs: number, size and time are bounded, whatever the file contains."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from greenroom.engine.media import limited_process, pdf_pages, pdf_process
from greenroom.engine.media.decoding_process import REFUSED, TimeLeft
from greenroom.engine.media.images import ImageLimits
from greenroom.engine.media.pdf_pages import AT_ONCE, PAGE_PIXELS, SECONDS, draw_pages
from greenroom.engine.resources.preparation_steps import run_to_end
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.hostile import documents, refusing_system
from greenroom.tests.support.media.held_decoders import endless_decoder, held_launcher
from greenroom.tests.support.servers.bounded_waits import wait_until

PARAM = "messages[0].content[0].file"


def drawn(data: bytes, *limits: ImageLimits, **named: Any) -> list[Image.Image]:
    return run_to_end(draw_pages(data, *limits, **named))


def refused(data: bytes, limits: ImageLimits = ImageLimits()) -> Problem:  # noqa: B008
    with pytest.raises(ProblemError) as caught:
        drawn(data, limits, param=PARAM)
    return caught.value.problem


def test_pages_are_drawn_in_order_at_a_size_that_can_be_read() -> None:
    pages = drawn(documents.document(3, box="0 0 595 842"))
    assert [page.size for page in pages] == [(1240, 1755)] * 3
    assert pages[0].getpixel((100, 1600)) == (0, 0, 255)
    assert pages[0].getpixel((1000, 100)) == (255, 255, 255)


@pytest.mark.parametrize("make", documents.REFUSED.values(), ids=documents.REFUSED)
def test_hostile_documents_are_refused_by_name(make: Callable[[], bytes]) -> None:
    problem = refused(make())
    assert (problem.status, problem.param) == (400, PARAM)
    assert f"`{PARAM}`" in problem.detail


_SLOW = ("operations", "1 GB", "circles")
"""Substrings in names of documents that take seconds."""


@pytest.mark.parametrize("name", [name for name in documents.ODD if not any(map(name.count, _SLOW))])
def test_odd_documents_are_drawn_or_refused_within_their_size(name: str) -> None:
    with suppress(ProblemError):
        pages = drawn(documents.ODD[name](), param=PARAM)
        assert all(page.width * page.height <= 2 * PAGE_PIXELS for page in pages)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Let each document take for ever, until this is undone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdf_process, "__file__", str(endless_decoder(tmp_path)))
        yield patch


@pytest.mark.usefixtures("endless")
def test_a_page_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(ProblemError, match="takes too long"):
        drawn(documents.document(), left=TimeLeft(0.0))


def test_an_encrypted_document_says_so() -> None:
    assert "encrypted" in refused(documents.encrypted()).detail


def test_the_number_of_pages_is_limited() -> None:
    detail = refused(documents.document(3), ImageLimits(pages=2)).detail
    assert "3 pages" in detail
    assert "2" in detail


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return a list of all processes started from now on."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    return started


@pytest.mark.usefixtures("endless")
def test_whoever_leaves_a_document_ends_its_process(processes: list[subprocess.Popen[bytes]]) -> None:
    drawing = draw_pages(documents.document())
    next(drawing)
    (process,) = processes
    assert process.poll() is None
    drawing.close()
    assert process.returncode == -signal.SIGKILL


def test_few_processes_draw_at_once_and_waiting_takes_none_of_a_documents_time(
    processes: list[subprocess.Popen[bytes]], endless: pytest.MonkeyPatch
) -> None:
    slow = [draw_pages(documents.document()) for _ in range(AT_ONCE)]
    for drawing in slow:
        next(drawing)
    left = TimeLeft(SECONDS)
    waiting = draw_pages(documents.document(), left=left)
    for _ in range(3):
        next(waiting)
    assert len(processes) == AT_ONCE
    assert left.seconds == SECONDS
    for drawing in slow:
        drawing.close()
    endless.undo()
    assert len(run_to_end(waiting)) == 1
    assert len(processes) == AT_ONCE + 1


def test_a_process_that_draws_takes_no_more_memory_than_it_may(
    monkeypatch: pytest.MonkeyPatch, processes: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(pdf_pages, "_BYTES", 300 * 1024**2)
    with pytest.raises(ProblemError, match="cannot be shown"):
        drawn(documents.inflating())
    assert processes[0].returncode != 0


def test_a_process_that_draws_watches_its_size_where_the_system_refuses_to_limit_it(
    monkeypatch: pytest.MonkeyPatch, processes: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(pdf_pages, "_BYTES", 300 * 1024**2)
    monkeypatch.setattr(limited_process, "__file__", refusing_system.__file__)
    assert len(drawn(documents.document(3))) == 3
    with pytest.raises(ProblemError, match="it takes too much memory"):
        drawn(documents.inflating())
    assert [process.returncode for process in processes] == [0, REFUSED]


def test_what_passes_after_a_document_is_drawn_is_none_of_its_time(
    processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, pipe = held_launcher(tmp_path)
    monkeypatch.setattr(limited_process, "__file__", str(program))
    left = TimeLeft(SECONDS)
    drawing = draw_pages(documents.document(), left=left)
    next(drawing)
    pipe.write_bytes(b"")
    (process,) = processes
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + 2 * SECONDS)
    assert len(run_to_end(drawing)) == 1
    assert left.seconds > 0
