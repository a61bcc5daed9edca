"""Hosts as settings name them, and the words about their hardware and links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.ranks.probe_host import HostReport, free_ports
from greenroom.engine.ranks.survey import (
    ask_reports,
    check_hosts,
    command_on,
    expectation,
    measure_link,
    possible_transport,
    rooms_of,
)
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.schemas.settings.hosts import THIS_HOST, Host, place_ranks, read_hosts
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.models.tiny_models import TinyModel

STUDIO = Host("studio.local", ("10.0.0.2",))


def test_hosts_are_read_from_entries_and_files_of_mlx(tmp_path: Path) -> None:
    file = tmp_path / "hosts.json"
    listed = [
        {"ssh": "me@studio.local", "ips": ["10.0.0.1", "10.0.1.1"], "rdma": [None, "rdma_en2"]},
        {"ssh": "mini", "ips": ["10.0.0.2"], "python": "/opt/python", "memory_bytes": 1000, "envs": ["C=d"]},
    ]
    file.write_text(json.dumps({"backend": "ring", "envs": ["A=b"], "hosts": listed}))
    studio, mini = read_hosts([str(file)])
    assert studio == Host("me@studio.local", ("10.0.0.1", "10.0.1.1"), envs=("A=b",))
    assert mini == Host("mini", ("10.0.0.2",), "/opt/python", 1000, ("A=b", "C=d"))
    file.write_text(json.dumps(listed))
    assert len(read_hosts([str(file)])) == 2
    assert read_hosts(["localhost", "studio.local=10.0.0.2"]) == (THIS_HOST, STUDIO)
    assert read_hosts(["127.0.0.1=10.0.0.7"])[0].is_here
    assert place_ranks(3, ()) == (THIS_HOST,) * 3
    assert place_ranks(1, (STUDIO, THIS_HOST)) == (STUDIO,)
    with pytest.raises(ValueError, match=r"ranks = 3 needs as many hosts, but there are 1 \(studio.local\)"):
        place_ranks(3, (STUDIO,))


def _listed(**changes: Any) -> Any:
    return [{"ssh": "a", "ips": ["10.0.0.1"], **changes}]


MESH = [
    {"ssh": "a", "ips": ["10.0.0.1"], "rdma": [None, "rdma_en2"]},
    {"ssh": "b", "ips": ["10.0.0.2"], "rdma": [["rdma_en2", "rdma_en3"], None]},
]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"backend": "jaccl-ring", "hosts": []}, "Invalid enum value 'jaccl-ring' - at .*backend"),
        ({"hosts": {}}, "Expected `array`, got `object` - at .*hosts"),
        ([], "Expected `array` of length >= 1"),
        ({"backend": "jaccl", "hosts": _listed()}, "needs `rdma` of each host"),
        ([7], r"Expected `object`, got `int` - at `\$\[0\]`; a host is such as"),
        ([*_listed(), {"ssh": "b"}], r"missing required field `ips` - at `\$\[1\]`"),
        (_listed(ssh="-oProxyCommand=x"), r"at `\$\[0\].ssh`; a host is such as {\"ssh\": \"studio.local\""),
        (_listed(ips=["fe80::1"]), r"at .*ips.*such as .*10\.0\.0\.2"),
        (_listed(ips=["10.0.0.256"]), "at .*ips.*such as"),
        (_listed(ips=[]), "Expected `array` of length >= 1 - at .*ips"),
        (_listed(port=1), "contains unknown field `port`"),
        (_listed(memory_bytes=True), "got `bool` - at .*memory_bytes"),
        (_listed(memory_bytes=0), "Expected `int` >= 1 - at .*memory_bytes"),
        (_listed(python=3), "got `int` - at .*python"),
        (_listed(python="~/bin/python"), "at .*python`.* such as .*/opt/bin/python"),
        ({"envs": ["A"], "hosts": _listed()}, "at .*envs.*NAME=VALUE"),
        ([*_listed(), *_listed(ips=["10.0.0.2"])], "listed twice"),
        (_listed() * 17, "there are 17 hosts"),
    ],
)
def test_wrong_entries_are_named(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=said):
        read_hosts([str(file)])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("studio.local", "studio.local: .* at .*ips.*a host is such as studio.local=10.0.0.2"),
        ("=10.0.0.2", "at .*ssh`; a host is such as studio.local=10.0.0.2"),
        ("/nowhere/hosts.json", "/nowhere/hosts.json: No such file"),
        ("~no-such-user/hosts.json", "~no-such-user/hosts.json: No such file"),
    ],
)
def test_wrong_entries_of_settings_are_named(entry: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_hosts([entry])


def test_devices_of_jaccl_are_read_and_must_reach_all_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps({"backend": "jaccl", "hosts": MESH}))
    hosts = read_hosts([str(file)])
    assert [host.rdma for host in place_ranks(2, hosts)] == [
        (None, "rdma_en2"),
        (("rdma_en2", "rdma_en3"), None),
    ]
    said = r"host b: rdma = .*: JACCL needs a device to each other host"
    with pytest.raises(ValueError, match=said):
        place_ranks(2, hosts[::-1])
    file.write_text(json.dumps({"backend": "jaccl", "hosts": MESH[::-1]}))
    with pytest.raises(ValueError, match=said):
        next(check_hosts([str(file)], None, Settings()))


def test_hosts_of_a_model_are_examined_as_it_has_them(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    own = ModelSettings(ranks=3, hosts=("localhost", "a=10.0.0.1"))
    settings = Settings(models=(str(folder),), model_settings=((folder.name, own),))
    with pytest.raises(ValueError, match=r"ranks = 3 needs as many hosts, but there are 2 \(localhost, a\)"):
        next(check_hosts((), str(folder), settings))
    with pytest.raises(ValueError, match="name hosts"):
        next(check_hosts((), None, settings))


def test_hosts_that_cannot_be_asked_are_told_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # so that there is no ssh
    names = [f"host{number}" for number in range(9)]
    told = ask_reports([Host(name, ("10.0.0.1",)) for name in names], None, "")
    assert [*told.items()] == [
        (name, HostReport(f"host {name}: ssh: No such file or directory")) for name in names
    ]


@pytest.mark.parametrize(
    ("host", "free", "room"),
    [
        (STUDIO, 990, 40),  # the first model's ranks have not read their weights yet
        (STUDIO, 30, 30),
        (Host("studio.local", ("10.0.0.2",), memory_bytes=80), 1, 20),
    ],
)
def test_a_second_model_gets_what_the_first_leaves(host: Host, free: int, room: int) -> None:
    account = MemoryAccount()
    Share(account.host(host.ssh)).charge_weights(60)
    report = HostReport(memory_bytes=100, free_bytes=free)
    assert rooms_of([host], {host.ssh: report}, account) == {host.ssh: room}


def test_commands_elsewhere_are_quoted_for_one_shell() -> None:
    far = Host("studio.local", ("10.0.0.2",), "/my python", envs=("A=b c",))
    *ssh, dashes, name, command = command_on(far, ["-m", "x", '{"a": 1}'])
    assert (ssh[0], dashes, name) == ("ssh", "--", "studio.local")
    assert command == """exec env 'A=b c' '/my python' -m x '{"a": 1}'"""
    assert command_on(THIS_HOST, ["-m", "x"])[1:] == ["-m", "x"]


def _end(kind: str, thunderbolt: int = 0, *, jaccl: bool = False) -> HostReport:
    return HostReport(link=kind, thunderbolt=thunderbolt, has_jaccl=jaccl)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            _end("thunderbolt", 5, jaccl=True),
            _end("thunderbolt", 5, jaccl=True),
            'JACCL) by "backend": "jaccl"',
        ),
        (
            _end("thunderbolt", 5),
            _end("thunderbolt", 5, jaccl=True),
            "once both have macOS 26.2 or later",
        ),
        (_end("ethernet", 5), _end("ethernet", 5), "are not those of the Thunderbolt"),
        (_end("thunderbolt", 4), _end("thunderbolt", 5, jaccl=True), "never JACCL"),
        (_end("ethernet"), _end("wireless"), "connect a cable"),
        (_end("ethernet"), _end("ethernet", 5), "Ethernet: the ring over TCP; never JACCL"),
        (_end("loopback"), _end("loopback"), "one machine"),
    ],
)
def test_the_fastest_transport_of_the_hardware_is_told(one: HostReport, other: HostReport, said: str) -> None:
    assert said in possible_transport(one, other)


def _addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2)]


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("exec sleep 600", 0.1, "did not answer in time"),
        (r"printf '\377'", 60.0, "does not answer as this version does"),
        ("echo '[0, 0]'", 60.0, "does not answer as this version does"),
    ],
)
def test_a_host_that_says_nothing_is_not_waited_for_and_nonsense_is_told(
    script: str, seconds: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greenroom.engine.ranks.survey._ANSWER_SECONDS", seconds)
    (odd := tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
    odd.chmod(0o755)
    with pytest.raises(ValueError, match=f"no link .* host localhost {said}"):
        measure_link([Host("localhost", ("127.0.0.1",), str(odd))] * 2, _addresses())


def test_a_link_is_measured_and_its_cost_told() -> None:
    latency, bandwidth = measure_link([THIS_HOST] * 2, _addresses())
    assert 0 < latency < 1
    assert bandwidth > 1e5
    told = expectation(2, 0.0005, 1.25e9, 16_384)
    assert "at least 1.01 ms to a token of 16,384 bytes and 13.1 ms" in told
    assert "20 tokens/s of one machine become at most 19.6" in told
    assert "at least 64.84 ms to a token" in (shared := expectation(2, 0.0005, 1.25e9, 16_384, 64))
    assert "become at most 11.1; each token waits for 64 sums over all ranks" in shared
