"""Sockets and pipes that a process takes over from a supervising parent or from systemd."""

from __future__ import annotations

import os
import socket

import click
import pytest

from greenroom.http.supervision.heartbeat import (
    Beat,
    Inheritance,
    ParentLink,
    Silence,
    SilenceLimits,
    inherit,
    parse_beat,
    variables_for,
)


def test_a_process_that_was_started_alone_inherits_nothing() -> None:
    assert inherit({"PATH": "/bin"}) == Inheritance()


def test_a_child_takes_over_sockets_and_pipe_and_passes_neither_on() -> None:
    read, write = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        own = os.dup(bound.fileno())
        link = ParentLink(write, 0.5, ("org/name",), 3)
        with socket.socket(fileno=own) as handed:
            environment = {**variables_for(link, (handed,)), "HOME": "/"}
            handed.detach()
        found = inherit(environment)
        assert found.parent == link
        assert environment == {"HOME": "/"}
        [sock] = found.sockets
        with sock:
            assert sock.getsockname() == bound.getsockname()
            assert not os.get_inheritable(sock.fileno())
    assert not os.get_inheritable(write)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("pid", ["", "1", "many"])
def test_sockets_of_systemd_for_another_process_are_left_alone(pid: str) -> None:
    assert inherit({"LISTEN_PID": pid, "LISTEN_FDS": "1"}) == Inheritance()


@pytest.mark.parametrize("number", ["", "-1", "two", "1.5"])
def test_a_number_that_is_none_means_no_sockets(number: str) -> None:
    assert inherit({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": number}) == Inheritance()


@pytest.mark.parametrize("kind", ["file", "closed", "connected", "datagrams"])
def test_what_cannot_be_listened_on_is_refused_with_its_number(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = socket.socketpair(socket.AF_UNIX)
    with first, second:
        if kind == "file":
            descriptor = os.open(os.devnull, os.O_RDONLY)
        elif kind == "datagrams":
            first.close()
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            datagrams.bind(("127.0.0.1", 0))
            descriptor = datagrams.detach()
        else:
            descriptor = os.dup(first.fileno())
        if kind == "closed":
            os.close(descriptor)
        monkeypatch.setattr("greenroom.http.supervision.heartbeat._FIRST_DESCRIPTOR", descriptor)
        with pytest.raises(click.ClickException, match=f"descriptor {descriptor} "):
            inherit({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
        if kind == "file":
            os.close(descriptor)


SERVING = Beat("serving")


def seconds_until_hung(beat: Beat | None) -> float:
    """Return the seconds after which a child counts as hung whose last sign of life was this one."""
    limits = SilenceLimits()
    silence, now = Silence(limits, 0.0), 0.0
    if beat is not None:
        silence.record(beat)
    while not silence.is_too_long(now):
        now += limits.interval
    return now


@pytest.mark.parametrize(
    ("beat", "seconds"),
    [
        (None, 60.0),
        (Beat("starting"), 60.0),
        (SERVING, 10.0),
        (Beat("serving", importing=True, busy=("qwen3",)), 60.0),
        (Beat("serving", busy=("qwen3",)), 10.0),
        (Beat("ending"), 10.0),
    ],
)
def test_a_silent_child_counts_as_hung_after_the_limit_of_its_stage(
    beat: Beat | None, seconds: float
) -> None:
    assert seconds_until_hung(beat) == seconds


def test_signs_of_life_begin_the_count_anew() -> None:
    silence = Silence(SilenceLimits(), 0.0)
    for second in range(100):
        silence.record(SERVING)
        assert not silence.is_too_long(float(second))


def test_time_in_which_the_watcher_itself_was_stopped_does_not_count() -> None:
    silence = Silence(SilenceLimits(), 0.0)
    silence.record(SERVING)
    assert not silence.is_too_long(36_000.0)
    assert silence.seconds == 2.0


def test_short_limits_are_checked_more_often() -> None:
    assert SilenceLimits().interval == 1.0
    assert SilenceLimits(serving=1.0).interval == pytest.approx(0.1)


def test_a_beat_is_read_as_it_was_sent() -> None:
    beat = Beat("serving", importing=True, busy=("org/name", "zwölf"))
    line = beat.to_line()
    assert line.endswith(b"\n")
    assert parse_beat(line) == beat


def test_a_line_of_many_long_names_still_fits_a_pipe() -> None:
    beat = Beat("serving", busy=tuple(f"{number}" + "n" * 1000 for number in range(50)))
    assert len(beat.to_line()) < 4096


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b'{"stage": "serving"}', b'{"stage": 1, "importing": 0, "busy": []}']
)
def test_the_rest_of_a_line_is_no_beat(line: bytes) -> None:
    assert parse_beat(line) is None
