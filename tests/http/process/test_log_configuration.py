"""A process's whole output is log lines of one format; each case is a separate process."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from typing import Any

import pytest

from greenroom.http.process import log_configuration
from greenroom.http.process.log_configuration import LineSink
from greenroom.tests.support.servers.bounded_waits import bounded

BEGIN = """
import faulthandler, logging, os, sys, threading, warnings
import structlog
from greenroom.http.process.log_configuration import configure_logging
configure_logging({format!r}, {level!r})
log = structlog.get_logger()
"""


def run(
    code: str, log_format: str = "json", level: str = "info", status: int = 0
) -> subprocess.CompletedProcess[str]:
    program = BEGIN.format(format=log_format, level=level) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done


def events(code: str, level: str = "info", status: int = 0) -> list[dict[str, Any]]:
    """Return the JSON log lines of a program; fail on any other line, or any output on stdout."""
    done = run(code, "json", level, status)
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_our_events_carry_what_they_were_given() -> None:
    (event,) = events(
        "log.info('loaded', actor='model', model='m', request_id='r', odd=object(), text='a\\nü')"
    )
    assert event.pop("timestamp").endswith("Z")
    assert event.pop("odd").startswith("<object")
    assert event == {
        **{"event": "loaded", "level": "info", "actor": "model", "model": "m", "request_id": "r"},
        "text": "a\nü",
    }


def test_the_console_has_the_time_to_the_second() -> None:
    line = run("log.info('x')", "console").stderr
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[info", line), line


def test_what_is_bound_to_a_context_is_on_its_lines() -> None:
    (event,) = events("structlog.contextvars.bind_contextvars(request_id='r'); log.info('x')")
    assert event["request_id"] == "r"


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels_hold_for_our_events_and_for_libraries(level: str, seen: int) -> None:
    code = "for n in ('debug', 'info', 'warning', 'error'): getattr(log, n)('ours'); getattr(lib, n)('x')"
    lines = events(f"lib = logging.getLogger('hypercorn.error')\n{code}", level)
    assert len(lines) == 2 * seen
    assert sum(line["event"] == "ours" for line in lines) == seen


def test_libraries_loggers_and_warnings() -> None:
    logged, warned = events("logging.getLogger('lib').warning('%s', 'two\\nlines'); warnings.warn('careful')")
    assert (logged["event"], logged["logger"]) == ("two\nlines", "lib")
    assert "UserWarning: careful" in warned["event"]


def test_a_library_with_a_handler_of_its_own() -> None:
    (event,) = events(
        "own = logging.getLogger('lib'); own.propagate = False\n"
        "own.addHandler(logging.StreamHandler()); own.warning('on my own')"
    )
    assert (event["stream"], event["text"]) == ("stderr", "on my own")


def test_prints_progress_bars_and_bytes() -> None:
    lines = events(
        "print('to stdout'); print('un', end=''); print('finished')\n"
        "sys.stderr.write('10%\\r20%\\n'); sys.stderr.buffer.write(b'raw\\xff\\n'); sys.stdout.write('last')"
    )
    assert [(line["stream"], line["text"]) for line in lines] == [
        ("stdout", "to stdout"),
        ("stdout", "unfinished"),
        ("stderr", "10%"),
        ("stderr", "20%"),
        ("stderr", "raw\\xff"),
        ("stdout", "last"),
    ]


def test_progress_bars_of_tqdm_stay_silent() -> None:
    assert events("from tqdm import tqdm\nfor _ in tqdm(range(3)): pass") == []


def test_a_logged_traceback_is_in_its_line() -> None:
    (event,) = events("try: 1/0\nexcept ZeroDivisionError: log.exception('crashed')")
    assert event["event"] == "crashed"
    assert event["exception"].splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_an_uncaught_exception_group() -> None:
    (event,) = events("raise ExceptionGroup('both', [ValueError('a'), KeyError('b')])", status=1)
    assert event["level"] == "critical"
    assert "ValueError: a" in event["exception"]


def test_an_uncaught_exception_in_a_thread() -> None:
    (event,) = events("t = threading.Thread(target=lambda: 1/0, name='w'); t.start(); t.join()")
    assert event["thread"] == "w"
    assert "ZeroDivisionError" in event["exception"]


def test_an_exception_that_python_can_only_mention() -> None:
    (event,) = events("class D:\n def __del__(self): raise ValueError('del')\nd = D(); del d")
    assert event["level"] == "error"
    assert "ValueError: del" in event["exception"]


def test_a_thread_that_ends_itself_is_no_event() -> None:
    assert events("t = threading.Thread(target=sys.exit); t.start(); t.join()") == []


def test_lines_of_many_threads_never_mix() -> None:
    lines = events(
        "from greenroom.http.process import log_configuration as sink\nsink.PATIENCE = 300\n"
        "def say(n):\n for i in range(50): log.info('x' * 3000, n=n); print('y' * 3000)\n"
        "ts = [threading.Thread(target=say, args=(n,)) for n in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]"
    )
    assert len(lines) == 800


def test_a_reader_that_has_gone_stops_nobody() -> None:
    program = BEGIN.format(format="json", level="info") + (
        "sys.stdin.readline()\nfor _ in range(10): log.info('x'); print('y')\nos.write(1, b'alive')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with bounded(process):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"alive"
    assert process.returncode in (0, 120)


def test_a_reader_that_stops_stops_nobody_and_hears_of_what_it_missed() -> None:
    program = BEGIN.format(format="json", level="info") + (
        "from greenroom.http.process import log_configuration as sink\nsink.PATIENCE = 0.1\n"
        "for n in range(3000): log.info('x' * 5000, n=n)\nos.write(1, b'alive')\n"
        "sys.stdin.readline()\nlog.info('again')"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe)
    with bounded(process):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"alive"
        os.set_blocking(process.stderr.fileno(), False)
        told = process.stderr.read()  # all that the pipe holds, before a further line finds room in it
        os.set_blocking(process.stderr.fileno(), True)
        told += process.communicate(b"\n", timeout=120)[1]
    *before, lost, again = told.decode().splitlines()
    whole = [json.loads(line) for line in before if line.endswith("}")]
    assert len(before) - len(whole) <= 1, "a line that was cut stands alone"
    assert [line["n"] for line in whole] == list(range(len(whole)))
    assert json.loads(again)["event"] == "again"
    assert (json.loads(lost)["event"], json.loads(lost)["count"]) == ("log lines lost", 3000 - len(whole))


def test_a_reader_that_stops_again_and_again_holds_the_server_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_configuration, "_SHARE", 0.0)
    poll, asked = select.poll, list[float]()

    class Poll:
        def __init__(self) -> None:
            self._poll = poll()
            self.register = self._poll.register

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            asked.append(milliseconds)
            return self._poll.poll(milliseconds)

    monkeypatch.setattr(select, "poll", Poll)
    read, write = os.pipe()
    with open(write, "w") as stream, open(read, "rb", buffering=0) as reader:
        sink = LineSink(stream, lambda count: f"{count} lost\n")
        for _ in range(3):
            sink.write("x" * (1 << 20))
            assert reader.read(1 << 20)
    assert asked[0] == 1000
    assert asked[-1] < 100


def test_console_lines_are_plain_when_nobody_watches() -> None:
    done = run("log.info('loaded', model='m'); print('out'); raise ValueError('bad')", "console", status=1)
    assert done.stdout == "out\n"
    assert "loaded" in done.stderr
    assert "model=m" in done.stderr
    assert "ValueError: bad" in done.stderr
    assert "\x1b" not in done.stderr


def test_what_clients_name_is_never_obeyed_by_a_terminal() -> None:
    hostile = "".join(map(chr, (*range(32), *range(127, 160), 0x2028, 0x202E, 0xD800)))
    code = f"""
hostile = {hostile!r}
log.info('answered', path='/ü' + hostile)
logging.getLogger('library').warning('hü' + hostile)
try:
    raise ValueError('bad' + hostile)
except ValueError:
    log.exception('lost')
"""
    shown = run(code, "console").stderr
    assert "path=/ü\\x00" in shown
    assert "hü\\x00" in shown
    assert "ValueError: bad\\x00" in shown
    assert {each for each in shown if not each.isprintable()} == {"\n", "\t"}


def test_warnings_of_model_libraries_are_for_developers() -> None:
    code = "logging.getLogger('transformers.rope').warning('Missing validation function')"
    assert events(code) == []
    assert len(events(code, "debug")) == 1
    assert len(events(code.replace("warning", "error"))) == 1


def test_people_see_no_amounts_that_are_zero_and_machines_see_all() -> None:
    amounts = "generated_tokens=3, drafted_tokens=0, decode_seconds=0.0, reason='0'"
    code = f"log.info('request finished', {amounts})"
    shown = run(code, "console").stderr
    assert "generated_tokens=3" in shown
    assert "reason=0" in shown
    assert "drafted_tokens" not in shown
    assert "decode_seconds" not in shown
    assert shown.index("generated_tokens") < shown.index("reason")
    assert events(code)[0]["drafted_tokens"] == 0
