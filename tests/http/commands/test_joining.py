"""Commands beside servers that run on the same machine, all of them as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from greenroom.tests.support.media.recordings import noise, write_recording
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.server_processes import (
    GREENROOM,
    ServerProcess,
    failing,
    run_greenroom,
    serving,
)
from greenroom.tests.support.servers.terminal import Terminal

BIND = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Starts a program as systemd does, with a Unix socket only."""
PLAIN = ("--max-tokens", "12", "--temperature", "0")


def answered(server: ServerProcess, requests: int) -> int:
    """Count the requests that a server has finished since the last look, once there are so many."""

    def done() -> int:
        return sum(line["event"] == "request finished" for line in server.read_log())

    wait_until(lambda: done() >= requests)
    found = done()
    server.log.clear()
    return found


def test_a_command_joins_a_server_that_has_its_model_and_prints_what_it_prints_alone(
    tiny_model: TinyModel,
) -> None:
    text = str(tiny_model("qwen3"))
    with serving(text) as server:
        joined = run("chat", text, *PLAIN, "--url", f"{server.address}/v1")
        assert answered(server, 1) == 1
        assert joined == check_joined(server, "chat", text, *PLAIN)


@pytest.mark.deep
def test_commands_join_a_server_that_listens_on_a_unix_socket_only(
    tiny_model: TinyModel, tiny_encoder: TinyEncoder
) -> None:
    text, encoder = str(tiny_model("qwen3")), str(tiny_encoder("bert"))
    with tempfile.TemporaryDirectory(prefix="greenroom-", dir="/tmp") as folder:  # a short path
        address = f"unix:{folder}/a.sock"
        program = (sys.executable, "-c", BIND, f"{folder}/a.sock", *GREENROOM)
        with serving(text, encoder, program=program) as server:
            assert server.address == address
            check_joined(server, "chat", text, *PLAIN)
            embed = ("embed", encoder, "--dimensions", "8", "Hello")
            joined = run(*embed, "--url", address)
            assert answered(server, 1) == 1
            assert joined == check_joined(server, *embed)
            for operator in (("ps",), ("ps", "--url", address), ("audit",)):
                told = run_greenroom(*operator)
                assert (told.returncode, told.stderr) == (0, ""), operator
            told = run_greenroom("keys", "list", "--url", address)
            assert (told.returncode, told.stderr) == (0, "There are no keys: no request needs one.\n")
            assert "qwen3" in run_greenroom("ps", "--url", address).stdout
            for command in (("launch", "--print", "llm"), ("launch", "--print", "--url", address, "llm")):
                refused = run_greenroom(*command)
                assert refused.returncode in (1, 2)
                assert "other programs cannot use a Unix socket" in refused.stderr
        gone = run_greenroom("chat", "--url", address, stdin="Hello\n")
        assert (gone.returncode, f"{address} does not answer" in gone.stderr) == (1, True)


@pytest.mark.soak
def test_speech_and_transcripts_of_a_server_are_those_of_the_command_alone(
    tiny_model: TinyModel, tiny_pocket: Path, tiny_whisper: Path, tmp_path: Path
) -> None:
    recording = str(write_recording(tmp_path / "speech.ogg", noise(3), "opus"))
    speak = ("speak", "Hello.", "-o", "-", "--format", "wav", "-m", str(tiny_pocket), "--voice", "alba")
    transcribe = ("transcribe", recording, "-m", str(tiny_whisper), "--format")
    with serving(*map(str, (tiny_model("qwen3"), tiny_pocket, tiny_whisper))) as server:
        check_joined(server, *transcribe, "json", "--words")
        check_joined(server, *transcribe, "srt", "--translate")
        check_joined(server, *transcribe, "json", "--translate", "--words", "--language", "fr")
        (_, spoken, _), (_, alone, _) = run_bytes(*speak), run_bytes(*speak, "--local")
        assert (len(spoken), spoken[:44]) == (len(alone), alone[:44])  # the model draws lots
        assert answered(server, 1) == 1
        # Without a name, the server's first model of the kind that the command needs.
        assert run("transcribe", recording)[::2] == (0, "")
        assert answered(server, 1) == 1


def check_joined(server: ServerProcess, *command: str) -> tuple[int, str, str]:
    """Check that a command asks the server, that with --local it does not, and that both print the same."""
    joined = run(*command)
    assert (joined[0], joined[2]) == (0, "")
    assert answered(server, 1) == 1
    assert run(*command, "--local") == joined
    assert answered(server, 0) == 0
    return joined


def run(*arguments: str) -> tuple[int, str, str]:
    done = run_greenroom(*arguments, stdin="Hello\n")
    return done.returncode, done.stdout, done.stderr


def run_bytes(*arguments: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run([*GREENROOM, *arguments], input=b"Hello\n", capture_output=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.deep
def test_a_model_that_no_server_has_is_loaded_here_and_a_line_says_so(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    served = tiny_model("qwen3")
    twin = tmp_path / served.name  # of the same name, but another folder
    twin.symlink_to(tiny_model("llama"))
    with serving(str(served)) as server:
        done = run_greenroom("chat", str(twin), *PLAIN, stdin="Hello\n")
        assert done.returncode == 0
        assert done.stderr.endswith(f"{server.address} does not serve '{twin}': loading it here\n")
        assert len(done.stderr.splitlines()) == 1
        spoken = run_greenroom("speak", "Hello", "-o", str(tmp_path / "a.wav"))
        assert spoken.returncode == 2
        assert "does not serve a model for speech" in spoken.stderr
        both = run_greenroom("chat", "--local", "--url", server.address, stdin="Hello\n")
        assert (both.returncode, "exclude each other" in both.stderr) == (2, True)
        assert answered(server, 0) == 0


@pytest.mark.soak
def test_of_several_servers_the_one_with_the_model_is_used_unless_a_flag_asks_for_another_load(
    tiny_model: TinyModel,
) -> None:
    first, second = str(tiny_model("qwen3")), str(tiny_model("llama"))
    with serving(first) as one, serving(second) as another:
        assert run_greenroom("chat", first, *PLAIN, stdin="Hello\n").returncode == 0
        assert (answered(one, 1), answered(another, 0)) == (1, 0)
        here = run_greenroom("chat", first, "--dtype", "float32", *PLAIN, stdin="Hello\n")
        assert here.returncode == 0
        assert "--dtype is for a model loaded here" in here.stderr
        assert (answered(one, 0), answered(another, 0)) == (0, 0)


@pytest.mark.deep
def test_lists_and_scores_are_those_of_the_running_server(
    tiny_model: TinyModel, tiny_encoder: TinyEncoder, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("a-key")
    ranker = str(tiny_encoder("bert-rerank"))
    options = (
        "--model-settings",
        f"{Path(ranker).name}:alias=judge",
        "--api-key-file",
        str(tmp_path / "key"),
    )
    with serving(str(tiny_model("qwen3")), ranker, *options) as server:
        assert run_greenroom("load", "qwen3", GREENROOM_API_KEY="a-key").returncode == 0
        rows = [line.split("\t") for line in run_greenroom("models").stdout.splitlines()]
        assert [(row[0], row[-1]) for row in rows if row[0] in ("qwen3", Path(ranker).name)] == [
            ("qwen3", "ready"),
            (Path(ranker).name, "idle"),
        ]
        assert [row[0] for row in rows if row[0] == "judge"] == ["judge"]
        shown = run_greenroom("show", "judge").stdout
        assert "idle" in shown
        assert len({line.index(line.split()[1], 3) for line in shown.splitlines()[:5]}) == 1
        alone = json.loads(run_greenroom("models", "--local", "--json").stdout)
        assert [row["state"] for row in alone] == [None] * len(alone)
        told = [line for line in server.read_log() if not {"actor", "logger"} & line.keys()]
        assert told == []
        rank = ("rerank", "-m", "judge", "who walks", "he walks", "it rains")
        joined = run_greenroom(*rank)
        assert (joined.returncode, answered(server, 1)) == (0, 1), joined.stderr
        here = run_greenroom("rerank", "--local", "-m", ranker, *rank[3:])
        scores = [[json.loads(line) for line in done.stdout.splitlines()] for done in (joined, here)]
        assert [row["index"] for row in scores[0]] == [row["index"] for row in scores[1]]
        of_both = [[row["relevance_score"] for row in each] for each in scores]
        assert of_both[0] == pytest.approx(of_both[1], abs=1e-5)


@pytest.mark.soak
def test_a_server_that_does_not_answer_is_passed_over(tiny_model: TinyModel) -> None:
    folder = str(tiny_model("qwen3"))
    with serving(folder) as server:
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            done = run_greenroom("chat", folder, *PLAIN, stdin="Hello\n")
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
    assert done.returncode == 0
    assert "not using the server at" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.deep
def test_a_server_that_dies_amid_an_answer_is_one_line_and_exit_1(tiny_model: TinyModel) -> None:
    folder = str(tiny_model("qwen3"))
    slow = failing("nothing", "nobody", pace=0.05)
    with serving(folder, program=slow) as server, closing(Terminal("chat", folder)) as terminal:
        terminal.read_until(">>> ")
        terminal.write("Hello\n")
        server.wait_for("request admitted")
        piped: list[int | str] = []

        def chat() -> None:
            done = run_greenroom("chat", folder, stdin="Hello\n")
            piped.extend((done.returncode, done.stderr))

        thread = threading.Thread(target=chat)
        thread.start()
        server.wait_for("request admitted")
        server.process.kill()
        thread.join()
        status, told = piped
        assert status == 1
        assert f"{server.address} does not answer" in str(told)
        assert len(str(told).splitlines()) == 1
        shown = terminal.read_until(">>> ")
        assert "does not answer" in shown
        terminal.write("\x04")
        assert terminal.end() == 0


@pytest.fixture(params=["joined", "--local"])
def place(request: pytest.FixtureRequest, tiny_model: TinyModel) -> Iterator[tuple[str, ...]]:
    """The arguments of a chat with a model of 128 tokens, in a server or in the command itself."""
    folder = str(tiny_model("qwen3"))
    if request.param == "joined":
        with serving(folder, "--max-context", "128"):
            yield ("chat", folder)
    else:
        yield ("chat", folder, "--local", "--max-context", "128")


@pytest.mark.deep
def test_a_chat_uses_the_whole_context_and_then_drops_its_oldest_turns_with_a_word(
    place: tuple[str, ...],
) -> None:
    with closing(Terminal(*place, "--temperature", "0")) as terminal:
        terminal.read_until(">>> ")
        texts = []
        for _ in range(3):
            terminal.write("Hello hello hello\n")
            texts.append(terminal.read_until(">>> "))
        terminal.write("\x04")
        assert terminal.end() == 0
    figures = [int(text.split(" tokens, ")[0].split("(")[-1]) for text in texts if " tokens, " in text]
    assert figures[0] > 64, texts  # not half the context, which is a server's limit
    assert "the context is full" not in texts[0]
    assert "the oldest 2 messages are left out" in texts[1]
