"""The calm client's waits beside harmless requests."""

from __future__ import annotations

import time

import trio

from greenroom.tests.attack.client.attacker import Attacker
from greenroom.tests.attack.requests.endpoints import CHAT
from greenroom.tests.attack.requests.steps import Attack, Call
from greenroom.tests.attack.server.target import Target


def largest_gap(target: Target, rows: int) -> float:
    """Return the calm client's longest wait in seconds beside `rows` plain requests, long and short."""
    messages = [{"role": "user", "content": "Tell me about the sea. " * 40}]
    body = {"model": target.models[0], "messages": messages, "max_tokens": 100}
    short = Call(CHAT, {**body, "messages": [{"role": "user", "content": "Hello"}]}, rows - rows // 2)
    return gap_beside(target, Attack((Call(CHAT, body, rows // 2), short), at_once=True))[0]


def gap_beside(target: Target, attack: Attack) -> tuple[float, Attacker]:
    """Return the calm client's longest wait in seconds beside an attack, and the attacker."""
    began = time.monotonic()
    attacker = Attacker(target.port, target.process.pid, target.models)
    trio.run(attacker.carry_out, attack)
    target.wait_for_calm(5)
    return target.calm_since(began).gap, attacker
