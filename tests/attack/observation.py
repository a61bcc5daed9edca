"""Observation of one attack: all faults during it or right after."""

from __future__ import annotations

import time

import trio

from greenroom.tests.attack import faults
from greenroom.tests.attack.client.attacker import Attacker
from greenroom.tests.attack.faults import Fault, Limits
from greenroom.tests.attack.requests.steps import (
    Abandoned,
    Attack,
    Call,
    FormCall,
    Shutdown,
    SocketMessage,
    Step,
    Suspension,
)
from greenroom.tests.attack.server.target import Target

FREE_WITHIN = 2.0
"""Seconds in which the server must close connections of clients that have left."""
CALM_WITHIN = 20.0
"""Seconds in which the calm client must get another chunk."""
_SAMPLING = 0.02


def observe(target: Target, attack: Attack, limits: Limits) -> list[Fault]:
    """Attack a running server, and restart it if it ended or hangs."""
    if target.ended is not None:
        target.start()
    found: list[Fault] = []
    plain = tuple(step for step in attack.steps if not isinstance(step, Shutdown))
    if plain:
        found += _attack(target, Attack(plain, attack.at_once), limits)
    for step in attack.steps:
        if isinstance(step, Shutdown) and target.ended is None:
            found += _shut_down(target, step, limits)
    if target.ended is not None or _has_lost_it(found):
        target.stop()
        target.start()
    return found


def _has_lost_it(found: list[Fault]) -> bool:
    return any(fault.kind in ("unanswered", "silent", "calm stream silent", "memory") for fault in found)


def _attack(target: Target, attack: Attack, limits: Limits) -> list[Fault]:
    before = target.resources()
    began = time.monotonic()
    attacker = Attacker(target.port, target.process.pid, target.models)
    peak = trio.run(_attack_and_sample, target, attacker, attack)
    if target.ended is not None:
        return [Fault("ended", f"exit status {target.ended}; {target.log_faults()[-5:]}")]
    found: list[Fault] = []
    goes_on = target.wait_for_calm(5, CALM_WITHIN)
    stopped = sum(step.seconds for step in attack.steps if isinstance(step, Suspension))
    found += faults.of_calm(target.calm_since(began), limits.gap + stopped, goes_on)
    found += faults.of_exchanges(attacker.exchanges)
    found += faults.of_memory(before.memory, peak, limits.memory)
    found += _left_behind(target, before.connections)
    for model in _asked(target, attack.steps):
        if not target.completes(model):
            found.append(Fault("silent", f"{model} does not answer any more"))
    if not target.answers():
        found.append(Fault("not ready", "/readyz is not 200"))
    found += [Fault("log", line) for line in target.log_faults()]
    return found


def _asked(target: Target, steps: tuple[Step, ...]) -> list[str]:
    """Return the models named in an attack's calls."""
    asked = [step.call if isinstance(step, Abandoned) else step for step in steps]
    bodies = [step.body for step in asked if isinstance(step, Call) and isinstance(step.body, dict)]
    bodies += [step.body for step in asked if isinstance(step, SocketMessage)]
    bodies += [dict(step.fields) for step in asked if isinstance(step, FormCall)]
    named = {body.get("model") for body in bodies if isinstance(body.get("model"), str)}
    return [model for model in (*target.models, *target.kinds) if model in named]


async def _attack_and_sample(target: Target, attacker: Attacker, attack: Attack) -> int:
    """Carry out an attack; return the server's peak memory in bytes."""
    peak = 0

    async def sample() -> None:
        nonlocal peak
        while True:
            peak = max(peak, target.resources().memory)
            await trio.sleep(_SAMPLING)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sample)
        await attacker.carry_out(attack)
        nursery.cancel_scope.cancel("the attack is over")
    return peak


def _left_behind(target: Target, before: int) -> list[Fault]:
    deadline = time.monotonic() + FREE_WITHIN
    slack = 2  # the calm client opens a new connection for each stream
    while (now := target.resources().connections) > before + slack:
        if time.monotonic() > deadline:
            return [Fault("leak", f"{now} connections instead of {before}")]
        time.sleep(_SAMPLING)
    return []


def _shut_down(target: Target, step: Shutdown, limits: Limits) -> list[Fault]:
    attacker = Attacker(target.port, target.process.pid, target.models)
    late = trio.run(_seconds_to_end, target, attacker, step)
    if late is None:
        return [Fault("shutdown", "the server did not end")]
    if late > limits.shutdown:
        return [Fault("shutdown", f"{late:.2f} s after the last stream's end")]
    return [Fault("log", line) for line in target.log_faults()]


async def _seconds_to_end(target: Target, attacker: Attacker, step: Shutdown) -> float | None:
    """Return the seconds from the end of the last stream to the server's end; None if it did not end."""
    reached = trio.Event()
    left = len(step.phases)

    def one_reached() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            reached.set()

    async with trio.open_nursery() as nursery:
        for phase in step.phases:
            nursery.start_soon(attacker.hold, phase, one_reached)
        if step.phases:
            with trio.move_on_after(CALM_WITHIN):
                await reached.wait()
        signalled, wall = trio.current_time(), time.monotonic()
        ended = await trio.to_thread.run_sync(target.terminate, 60.0)
        now = trio.current_time()
        nursery.cancel_scope.cancel("the server has ended")
    if not ended:
        return None
    calm = target.calm_since(wall)
    last = max(attacker.last_byte - signalled, calm.last_piece - wall, 0.0)
    return (now - signalled) - last
