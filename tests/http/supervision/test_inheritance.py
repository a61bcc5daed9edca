"""Sockets and pipes that a process takes over from a supervising parent or from systemd."""

from __future__ import annotations

import os
import socket

import click
import pytest

from greenroom.http.supervision.beat import Inheritance, ParentLink, inherit, variables_for


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
        monkeypatch.setattr("greenroom.http.supervision.beat._FIRST_DESCRIPTOR", descriptor)
        with pytest.raises(click.ClickException, match=f"descriptor {descriptor} "):
            inherit({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
        if kind == "file":
            os.close(descriptor)
