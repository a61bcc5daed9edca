"""`greenroom chat` through a pipe, and at a real terminal."""

from __future__ import annotations

import hashlib
import signal
from contextlib import closing
from pathlib import Path

import pytest

from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bench_servers import chunked, delta, event, scripted_server
from greenroom.tests.support.servers.server_processes import run_greenroom, serving
from greenroom.tests.support.servers.terminal import Terminal


def test_chat_answers_what_is_piped_into_it(tiny_model: TinyModel) -> None:
    arguments = ("chat", str(tiny_model("qwen3")), "--max-tokens", "12", "--temperature", "0")
    first = run_greenroom(*arguments, stdin="Hello\n")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert len(first.stdout) > 1
    with serving(str(tiny_model("qwen3"))) as server:
        remote = run_greenroom("chat", "--url", server.address, *arguments[2:], stdin="Hello\n")
        assert (remote.returncode, remote.stdout) == (0, first.stdout)
        refused = run_greenroom("chat", "nope", "--url", server.address, stdin="Hello\n")
    assert refused.returncode == 1
    assert "'nope' does not exist" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_chat_at_a_terminal_takes_turns_and_stops_an_answer_at_ctrl_c(
    tiny_model: TinyModel,
) -> None:
    with closing(Terminal("chat", str(tiny_model("qwen3")), "--max-tokens", "20000")) as terminal:
        terminal.read_until(">>> ")
        terminal.write("Hello\n")
        terminal.read_until("\x1b[?25h")
        terminal.write("\x03")
        terminal.read_until(">>> ")
        terminal.write("/new\n")
        terminal.read_until(">>> ")
        terminal.write("\x04")
        assert terminal.end() == 0


@pytest.mark.deep
def test_chat_shows_images(tiny_model: TinyModel, tmp_path: Path) -> None:
    photo, other = tmp_path / "photo.png", tmp_path / "other.jpg"
    photo.write_bytes(pictures.photo(64, 64, "PNG"))
    other.write_bytes(pictures.photo())
    shown = ("--image", str(photo), "--image", str(other))
    arguments = ("chat", str(tiny_model("llama")), "--max-tokens", "3", *shown)
    # The table of images proves that the prompt had both.
    numbered = run_greenroom(*arguments, stdin="Hello\n", GREENROOM_IMAGES_IDS="on")
    assert (numbered.returncode, numbered.stderr) == (0, "")
    names = [
        f"image_{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}.{end}"
        for file, end in ((photo, "png"), (other, "jpeg"))
    ]
    assert numbered.stdout.endswith(f"| 1 | {names[0]} |\n| 2 | {names[1]} |\n")


def test_chat_says_which_file_it_cannot_show(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("no image")
    for path, says in (
        (text, "neither a JPEG"),
        (tmp_path / "b.png", "No such file"),
        (tmp_path, "directory"),
        ("/dev/zero", "is not a regular file"),
        ("~nobody-of-that-name/a.png", "Could not determine home directory"),
    ):
        refused = run_greenroom("chat", "--image", str(path), stdin="Hello\n")
        assert refused.returncode == 2
        assert says in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.deep
def test_chat_reads_text_from_stdin() -> None:
    for redirected, says in (
        ("</dev/zero", "stdin has more than 16,777,216 bytes"),
        ("<&-", "stdin is closed"),
        ("</dev/null", "there is no text on stdin"),
    ):
        refused = run_greenroom("chat", redirected=redirected)
        assert refused.returncode == 2
        assert says in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.deep
def test_at_a_terminal_an_image_is_shown_with_the_next_line(tiny_model: TinyModel, tmp_path: Path) -> None:
    photo = tmp_path / "my photo.png"
    photo.write_bytes(pictures.photo(64, 64, "PNG"))
    with closing(Terminal("chat", str(tiny_model("llama")), "--max-tokens", "5")) as terminal:
        terminal.read_until(">>> ")
        terminal.write("/image nothing.png\n")
        assert "No such file" in terminal.read_until(">>> ")
        terminal.write(f"/image {photo}\n")
        terminal.read_until(">>> ")
        terminal.write("Hello\n")
        assert "is a text model" in terminal.read_until(">>> ")
        terminal.write("/new\n")
        terminal.read_until(">>> ")
        terminal.write("Hello\n")
        assert "tokens/s" in terminal.read_until(">>> ")
        terminal.write("\x04")
        assert terminal.end() == 0


def test_a_signal_at_the_prompt_ends_the_chat_and_restores_the_terminal(
    tiny_model: TinyModel,
) -> None:
    with closing(Terminal("chat", str(tiny_model("llama")))) as terminal:
        usual = terminal.modes()
        terminal.read_until(">>> ")
        assert terminal.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert terminal.modes_at_end == usual


@pytest.mark.deep
def test_a_terminal_obeys_nothing_that_a_model_writes() -> None:
    hostile = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\x9b2J\x00"
    spelled = "\\x1b]52;c;cHduZWQ=\\x07\\x1b[2J\\x9b2J\\x00"
    loading = event(queue_status={"status": "loading", "model": f"[/x]{hostile}"})
    parts = (loading, delta(reasoning_content="hm" + hostile), delta(content="ü👩\u200d🚀" + hostile))
    with scripted_server(lambda _body: chunked(*parts, b"data: [DONE]\n\n")) as (address, _):
        with closing(Terminal("chat", "--url", address)) as terminal:
            terminal.read_until(">>> ")
            terminal.write("Hello\n")
            shown = terminal.read_until(">>> ")
            terminal.write("\x04")
            assert terminal.end() == 0
        piped = run_greenroom("chat", "--url", address, stdin="Hello\n")
    assert f"hm{spelled}" in shown
    assert f"ü👩\u200d🚀{spelled}" in shown
    assert hostile not in shown
    assert piped.stdout == f"ü👩\u200d🚀{hostile}\n"
