"""Large images are decoded in a process, one at a time per client; small ones do not wait."""

from __future__ import annotations

import io
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from greenroom.engine.media import image_process, large_images
from greenroom.engine.media.images import LARGE, ResolutionLimit, decode_image
from greenroom.engine.media.large_images import decode_in_steps
from greenroom.engine.resources.preparation_steps import PENDING, run_to_end
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.media.held_decoders import endless_decoder

SIDE = 2_400
assert SIDE * SIDE > LARGE


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return a list of all started processes."""
    started: list[subprocess.Popen[bytes]] = []
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen

    def noted(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    return started


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let each image take for ever, however long the test waits."""
    monkeypatch.setattr(image_process, "__file__", str(endless_decoder(tmp_path)))


def large(kind: str = "PNG", mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    image = Image.linear_gradient("L").resize((SIDE, SIDE + 1)).convert(mode)
    image.save(file, kind, **({"lossless": True, "method": 0} if kind == "WEBP" else {}))
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("PNG", "RGB"), ("WEBP", "RGB"), ("JPEG", "CMYK")),
        *(pytest.param("PNG", mode, marks=pytest.mark.deep) for mode in ("RGBA", "P")),
    ],
)
def test_large_images_have_the_pixels_that_the_server_would_read(
    kind: str, mode: str, processes: list[subprocess.Popen[bytes]]
) -> None:
    data = large(kind, mode)
    for resolution in (ResolutionLimit(), ResolutionLimit(area=500_000)):
        made = run_to_end(decode_in_steps(data, resolution=resolution))
        assert np.array_equal(np.asarray(made), np.asarray(decode_image(data, resolution=resolution)))
    assert processes, "at least one by a process"
    assert len(processes) == (1 if kind == "JPEG" else 2)


def test_small_images_need_no_process(processes: list[subprocess.Popen[bytes]]) -> None:
    assert run_to_end(decode_in_steps(pictures.photo())).size == (64, 64)
    assert not processes


@pytest.mark.usefixtures("endless")
def test_others_go_on_while_a_large_image_is_decoded_and_whoever_leaves_ends_it(
    processes: list[subprocess.Popen[bytes]],
) -> None:
    steps = decode_in_steps(pictures.large_webp(), client="one")
    assert next(steps) == PENDING
    assert run_to_end(decode_in_steps(pictures.photo(), client="one")).size == (64, 64)
    (process,) = processes
    steps.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("endless")
def test_a_client_has_one_large_image_at_a_time(processes: list[subprocess.Popen[bytes]]) -> None:
    data = pictures.large_webp()
    mine = [decode_in_steps(data, client="one") for _ in range(3)]
    for steps in mine:
        assert next(steps) == PENDING
    assert len(processes) == 1
    other = decode_in_steps(data, client="two")
    assert next(other) == PENDING
    assert len(processes) == 2
    mine[0].close()
    assert next(mine[1]) == PENDING
    assert len(processes) == 3
    for steps in (*mine, other):
        steps.close()
    assert not {"one", "two"} & large_images._DECODING._turns.keys()


def test_a_large_image_that_is_broken_is_refused_by_name() -> None:
    data = large()
    with pytest.raises(ProblemError) as refused:
        run_to_end(decode_in_steps(data[: len(data) // 2], param="image"))
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "image")
    assert "PNG file that cannot be decoded" in refused.value.problem.detail


@pytest.mark.deep
def test_a_large_webp_of_few_bytes_is_decoded_by_a_process(processes: list[subprocess.Popen[bytes]]) -> None:
    data = pictures.large_webp()
    assert len(data) < 50
    made = run_to_end(decode_in_steps(data, resolution=ResolutionLimit(area=1_000_000)))
    assert made.width == made.height
    assert made.getpixel((0, 0)) == (1, 2, 3)
    assert len(processes) == 1


@pytest.mark.usefixtures("endless")
def test_a_process_that_takes_too_much_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_images, "SECONDS", 0.0)
    with pytest.raises(ProblemError, match="Send a smaller image"):
        run_to_end(decode_in_steps(pictures.large_webp()))
