"""Tests of the attack itself: it finds faults, shrinks them, and finds none in our server."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from greenroom.tests.attack import faults
from greenroom.tests.attack.campaign import Campaign
from greenroom.tests.attack.client.attacker import Exchange
from greenroom.tests.attack.client.calm_log import summarize
from greenroom.tests.attack.client.wire import MAKERS, FormBytes
from greenroom.tests.attack.faults import Fault, Limits
from greenroom.tests.attack.observation import observe
from greenroom.tests.attack.requests import files
from greenroom.tests.attack.requests.connections import attacks
from greenroom.tests.attack.requests.json_pieces import Literal, Made, Members, Nested, Repeated, Text, encode
from greenroom.tests.attack.requests.sockets import HARMS, PATH
from greenroom.tests.attack.requests.steps import (
    Attack,
    Call,
    FormCall,
    HarmfulSockets,
    References,
    SilentReaders,
)
from greenroom.tests.attack.server.target import Target, is_fault
from greenroom.tests.support.servers.free_port import free_port

MODELS = ("calm", "other")


def has_sixteen_choices(attack: Attack) -> bool:
    bodies = [step.body for step in attack.steps if isinstance(step, Call) and isinstance(step.body, dict)]
    return any(body.get("n") == 16 for body in bodies)


def calls_of(attack: Attack) -> list[Call]:
    return [step for step in attack.steps if isinstance(step, Call)]


def test_harm_is_found_and_made_small() -> None:
    def many_copies_do_harm(attack: Attack) -> list[Fault]:
        return [Fault("gap", "too long")] if any(call.copies >= 16 for call in calls_of(attack)) else []

    found = Campaign(attacks(MODELS), many_copies_do_harm, 600, report=lambda _: None, searches=4).run(seed=1)
    [call] = found[0].smallest.steps
    assert isinstance(call, Call)
    assert call.copies == 16
    assert len(found[0].first.steps) + len(repr(found[0].first)) > 1 + len(repr(found[0].smallest))


def test_the_same_seed_makes_the_same_attacks() -> None:
    def tried(seed: int) -> list[Attack]:
        seen: list[Attack] = []

        def see(attack: Attack) -> list[Fault]:
            seen.append(attack)
            return []

        Campaign(attacks(MODELS), see, 600, report=lambda _: None, searches=10).run(seed)
        return seen

    first = tried(3)
    assert first == tried(3)
    assert len(first) > 20


def test_what_does_not_come_again_is_no_finding() -> None:
    observed: list[Attack] = []

    def once(attack: Attack) -> list[Fault]:
        observed.append(attack)
        return [Fault("gap", "a bad moment")] if observed.count(attack) == 1 else []

    assert Campaign(attacks(MODELS), once, 600, report=lambda _: None, searches=1).run(seed=1) == []
    assert observed


def test_harm_that_stops_coming_while_it_is_made_smaller_is_a_finding() -> None:
    observed: list[Attack] = []

    def four_times(attack: Attack) -> list[Fault]:
        observed.append(attack)
        return [Fault("gap", "too long")] if len(observed) <= 4 else []

    [found] = Campaign(attacks(MODELS), four_times, 600, report=lambda _: None, searches=2).run(seed=1)
    assert found.smallest == found.first == observed[0]


@pytest.mark.parametrize(
    ("piece", "value"),
    [
        (Repeated(1, 3), [1, 1, 1]),
        (Text('"é', 2), '"é"é'),
        (Members([], 2), {"m0": [], "m1": []}),
        (Nested("[", 2), [[0]]),
        (Nested('{"a":', 2), {"a": {"a": 0}}),
        (Literal("1e2"), 100.0),
        ({"a": [Repeated("x", 1)]}, {"a": [["x"]]}),
    ],
)
def test_pieces_are_json(piece: object, value: object) -> None:
    assert json.loads(encode(piece, MAKERS)) == value


def test_files_are_texts_in_json_and_bytes_in_forms() -> None:
    url = json.loads(encode(Made("URL of image: plain", 0), MAKERS))
    data = files.content("image: plain")
    assert base64.b64decode(url.removeprefix("data:image/png;base64,")) == data
    step = FormCall("/v1/audio/transcriptions", (("model", "hears"),), "image: plain")
    head, _, body = b"".join(FormBytes(step)).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert data in body


@pytest.mark.parametrize("name", sorted(HARMS))
def test_hostile_sockets_begin_with_a_handshake(name: str) -> None:
    pieces = HARMS[name].sent("calm")
    sent = b"".join(islice(pieces, 200 if name == "slow handshake" else 2))
    head, _, frames = sent.partition(b"\r\n\r\n")
    assert head.startswith(f"GET {PATH} HTTP/1.1\r\n".encode())
    assert all(byte & 0x80 for byte in frames[1:2]), "a client masks its frames"


def test_a_socket_opened_for_another_site_is_a_fault() -> None:
    opened = Exchange("foreign origin", 101, b"", refused=True)
    refused = Exchange("foreign origin", 403, b"{}", refused=True)
    assert [fault.kind for fault in faults.of_exchanges([opened, refused])] == ["accepted"]


def test_what_is_nested_deeply_is_encoded() -> None:
    assert encode(Made("nested_negations", 900), MAKERS).count("not") == 900


def test_a_client_that_was_late_itself_blames_nobody() -> None:
    lines = [
        {"kind": "piece", "at": 10.0, "gap": 0.5},
        {"kind": "late", "at": 9.9, "gap": 0.3},
        {"kind": "probe", "at": 11.0, "gap": 0.1},
    ]
    assert summarize(lines).gap == pytest.approx(0.2)


def test_answers_that_are_faults() -> None:
    full = json.dumps({"error": {"code": "queue_full"}}).encode()
    document = json.dumps({"type": "urn:greenroom:problem:too_many_bodies", "error": "full"}).encode()
    exchanges = [
        Exchange("a", 503, full),
        Exchange("as Ollama's", 503, document),
        Exchange("b", 500, b""),
        Exchange("c", 200, b'data: {"error": {"code": "internal_error"}}'),
        Exchange("d", None, timed_out=True),
        Exchange("e", 400, b"{}"),
        Exchange("f", None),
        Exchange("refused", 400, b"{}", refused=True),
        Exchange("accepted", 200, b"{}", refused=True),
        Exchange("refused late", 200, b'data: {"error":{"code":"invalid_value"}}', refused=True),
        Exchange("left", None, refused=True),
        Exchange("g", 505, json.dumps({"error": {"code": "http_version_not_supported"}}).encode()),
    ]
    assert [fault.kind for fault in faults.of_exchanges(exchanges)] == [
        "status",
        "status",
        "unanswered",
        "accepted",
    ]


@pytest.mark.parametrize(
    ("body", "bounded"),
    [
        ({"messages": [], "max_tokens": 8}, True),
        ({"messages": [], "options": {"num_predict": 8}}, True),
        ({"messages": [], "options": Members("", 10_000)}, False),
        ({"prompt": "a", "max_tokens": None}, False),
        ({"query": "a", "documents": []}, True),
    ],
)
def test_an_answer_without_a_limit_may_take_its_time(body: dict[str, object], bounded: bool) -> None:
    assert Call("/api/chat", body).is_bounded is bounded


def test_only_a_locked_store_excuses_errors_in_the_log() -> None:
    error = {"level": "error", "event": "response not stored"}
    assert is_fault(json.dumps(error))
    assert not is_fault(json.dumps({**error, "problem": "store_busy"}))
    assert not is_fault(json.dumps({**error, "level": "warning"}))
    assert is_fault("Traceback (most recent call last):")


@pytest.mark.soak
def test_a_server_that_stalls_is_found_out(tmp_path: Path) -> None:
    server = Path(__file__).with_name("server") / "faulty_server.py"
    target = Target(lambda port: [sys.executable, str(server), str(port)], free_port(), MODELS, tmp_path)
    target.start()
    limits = Limits(gap=0.4)
    try:
        found = Campaign(
            attacks(MODELS, restarts=False), lambda attack: observe(target, attack, limits), seconds=180
        ).run(seed=1)
    finally:
        target.stop()
    assert any(finding.fault.kind == "gap" and has_sixteen_choices(finding.smallest) for finding in found)


@pytest.mark.soak
def test_hostile_models_do_no_harm_to_others(tmp_path: Path) -> None:
    from greenroom.tests.attack.hostile_models import faults_of_models, make_hostile_models
    from greenroom.tests.attack.server.serving import server_command
    from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer

    make_tokenizer(tmp_path)
    plain = make_tiny_model("qwen3", tmp_path / "plain", tmp_path)
    models = make_hostile_models(plain, tmp_path / "hostile")
    target = Target(server_command((plain,), tuple(models.values())), free_port(), ("plain",), tmp_path)
    target.start()
    try:
        assert [*faults_of_models(target, models, Limits(gap=2.0), print)] == []
    finally:
        target.stop()


@pytest.mark.soak
def test_stored_items_do_no_harm_to_others(tmp_path: Path) -> None:
    from greenroom.tests.attack.server.serving import server_command
    from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer

    make_tokenizer(tmp_path)
    plain = make_tiny_model("qwen3", tmp_path / "plain", tmp_path)
    target = Target(server_command((plain,)), free_port(), ("plain",), tmp_path)
    target.start()
    try:
        for step in (SilentReaders(16, 12), References(2_000, 4)):
            assert observe(target, Attack((step,)), Limits(gap=2.0)) == []
    finally:
        target.stop()


@pytest.mark.soak
@pytest.mark.parametrize("harm", sorted(HARMS))
def test_web_sockets_do_no_harm_to_others(tmp_path: Path, harm: str) -> None:
    from greenroom.tests.attack.server.serving import server_command
    from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer

    make_tokenizer(tmp_path)
    plain = make_tiny_model("qwen3", tmp_path / "plain", tmp_path)
    target = Target(server_command((plain,)), free_port(), ("plain",), tmp_path)
    target.start()
    try:
        assert observe(target, Attack((HarmfulSockets(harm, 16),)), Limits(gap=2.0)) == []
    finally:
        target.stop()


@pytest.mark.soak
def test_nothing_is_found_in_two_minutes() -> None:
    command = [sys.executable, "-m", "greenroom.tests.attack", "--seconds", "120"]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
