"""The responses actor in a nursery, with a real tiny model and a real database."""

from __future__ import annotations

import json
import threading

import attrs
import pytest
import trio

from greenroom.actors.responses import responses
from greenroom.actors.responses.event_log import ConversationLock, Subscribed
from greenroom.actors.responses.responses import Responses
from greenroom.actors.store.tables import Run
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.messages.requests import RequestInput
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import Drain, Drained
from greenroom.schemas.protocols.responses_protocol import (
    CancelRun,
    Deleted,
    DeleteRun,
    LockConversation,
    RunEnded,
    RunOutcome,
    StartRun,
    Subscribe,
)
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredConversation, StoredResponse
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    chat,
)
from greenroom.tests.support.actors.stored_records import change
from greenroom.tests.support.actors.stored_runs import (
    OWNER,
    read,
    read_until_text,
    retrieve,
    run,
    start,
    subscribe,
    text_of,
    wait_stored,
)
from greenroom.tests.support.engines.watched_engines import WatchedEngine, WatchedEngines, until

LONG = 20_000


@attrs.frozen
class Held:
    """A system whose engine the test can stop between steps, to check its events so far."""

    system: System
    engines: WatchedEngines

    @property
    def engine(self) -> WatchedEngine:
        assert self.engines.engine is not None
        return self.engines.engine

    async def stop(self) -> None:
        self.engine.go_on.clear()
        await until(self.engine.stands.is_set)

    async def steps_to_the_end(self) -> list[list[InferenceEvent]]:
        """Resume the engine; return the events of its further steps until it had no work."""
        before = len(self.engine.steps)
        self.engine.go_on.set()
        await until(lambda: len(self.engine.steps) > before and not self.engine.has_work)
        return self.engine.steps[before:]


def cancelled_at_once(steps: list[list[InferenceEvent]]) -> bool:
    """Return whether the only step ended one answer, as cancelled."""
    return [event.reason for step in steps for event in step if isinstance(event, Finished)] == [
        "cancelled"
    ] and len(steps) == 1


async def test_the_end_is_what_is_stored_with_the_raw_text(settings: Settings) -> None:
    async with open_system(settings) as system:
        events = await read(await subscribe(system.refs, start("resp_1", max_tokens=8)))
        end = events[-1]
        assert isinstance(end, RunEnded)
        assert end.response == await retrieve(system.refs, "resp_1")
        assert end.response.status == "incomplete"
        assert text_of(events)
        assert end.response.raw.startswith(text_of(events))
        assert json.loads(end.response.body)["text"] == text_of(events)
        assert end.response.model == "qwen3"
        assert isinstance(await retrieve(system.refs, "resp_1", "somebody else"), Problem)


async def test_all_who_read_a_background_run_read_the_same_now_and_later(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with open_system(settings, engines=engines) as system:
        held = Held(system, engines)
        logs = []

        async def read_another() -> None:
            logs.append(await read(await subscribe(system.refs, Subscribe("resp_1", OWNER))))

        first = await subscribe(system.refs, start("resp_1", background=True, max_tokens=100))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_another)
            beginning = await read_until_text(first)
            await held.stop()
            beginning += first.receive_ready()
            first.close()
            nursery.start_soon(read_another)
            held.engine.go_on.set()
            nursery.start_soon(read_another)
        await wait_stored(system.refs, "resp_1")
        await read_another()
        assert len(logs) == 4
        assert all(log == logs[0] for log in logs)
        assert logs[0][: len(beginning)] == beginning
        assert isinstance(logs[0][-1], RunEnded)


async def test_a_run_in_the_foreground_ends_with_its_reader_and_keeps_what_it_wrote(
    settings: Settings,
) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with open_system(settings, engines=engines) as system:
        held = Held(system, engines)
        reader = await subscribe(system.refs, start("resp_1", max_tokens=LONG))
        seen = await read_until_text(reader)
        await held.stop()
        seen += reader.receive_ready()
        reader.close()
        stored = await wait_stored(system.refs, "resp_1")
        assert cancelled_at_once(await held.steps_to_the_end())
        assert stored.status == "cancelled"
        assert text_of(seen)
        assert stored.raw.startswith(text_of(seen))


async def test_a_run_in_the_background_goes_on_until_it_is_cancelled(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with open_system(settings, engines=engines) as system:
        held = Held(system, engines)
        reader = await subscribe(system.refs, start("resp_1", background=True, max_tokens=LONG))
        await read_until_text(reader)
        reader.close()
        before = len(held.engine.steps)
        held.engine.go_on.set()
        await until(lambda: len(held.engine.steps) > before + 20)
        await held.stop()
        cancel = CancelRun("resp_1", OWNER)
        cancelled = await system.refs.responses.ask(cancel, StoredResponse)
        assert cancelled_at_once(await held.steps_to_the_end())
        assert isinstance(cancelled, StoredResponse)
        assert cancelled.status == "cancelled"
        assert cancelled.raw
        again = await system.refs.responses.ask(cancel, StoredResponse)
        assert again == cancelled == await retrieve(system.refs, "resp_1")
        end = (await read(await subscribe(system.refs, Subscribe("resp_1", OWNER))))[-1]
        assert end == RunEnded(cancelled)


async def test_only_what_runs_in_the_background_is_cancelled_or_read_by_others(settings: Settings) -> None:
    async with open_system(settings) as system:
        reader = await subscribe(system.refs, start("resp_1", max_tokens=LONG))
        await read_until_text(reader)
        for stored in (False, True):
            for message in (CancelRun("resp_1", OWNER), Subscribe("resp_1", OWNER)):
                answer = await system.refs.responses.ask(message, StoredResponse)
                assert isinstance(answer, Failed)
                assert (answer.problem.status, answer.problem.code) == (400, "not_in_background")
            if not stored:
                reader.close()
                await wait_stored(system.refs, "resp_1")


async def test_a_run_that_is_deleted_ends_and_is_gone(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with open_system(settings, engines=engines) as system:
        held = Held(system, engines)
        reader = await subscribe(system.refs, start("resp_1", background=True, max_tokens=LONG))
        await read_until_text(reader)
        await held.stop()
        assert isinstance(await system.refs.responses.ask(DeleteRun("resp_1", OWNER), Deleted), Deleted)
        assert cancelled_at_once(await held.steps_to_the_end())
        assert isinstance((await read(reader))[-1], RunEnded)
        gone = await retrieve(system.refs, "resp_1")
        assert isinstance(gone, Problem)
        assert gone.status == 404


async def test_what_cannot_be_stored_has_failed_and_leaves_nothing_behind(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with open_system(settings, engines=engines) as system:
        conversation = StoredConversation("conv_1", OWNER, 1.0)
        await change(system.refs.store, lambda tables: tables.conversations.create(conversation))
        reader = await subscribe(system.refs, start("resp_1", conversation="conv_1", max_tokens=20))
        await read_until_text(reader)
        assert engines.engine is not None
        await change(system.refs.store, lambda tables: tables.responses.delete_conversation("conv_1", OWNER))
        engines.engine.go_on.set()
        end = (await read(reader))[-1]
        assert isinstance(end, RunEnded)
        assert end.response.status == "failed"
        assert end.problem is not None
        assert end.problem.status == 404
        assert isinstance(await retrieve(system.refs, "resp_1"), Problem)


async def test_a_conversation_is_locked_until_its_turn_is_stored(settings: Settings) -> None:
    async with open_system(settings) as system:
        refs = system.refs
        conversation = StoredConversation("conv_1", OWNER, 1.0)
        await change(refs.store, lambda tables: tables.conversations.create(conversation))
        message = LockConversation(OWNER, "conv_1")
        lock = await refs.responses.ask(message, ConversationLock)
        assert isinstance(lock, ConversationLock)
        reader = await subscribe(refs, start("resp_1", lock=lock, conversation="conv_1", max_tokens=60))
        lock.close()
        busy = await refs.responses.ask(message, ConversationLock)
        assert isinstance(busy, Failed)
        assert (busy.problem.status, busy.problem.code) == (409, "conversation_in_use")
        await read(reader)
        again = await refs.responses.ask(message, ConversationLock)
        assert isinstance(again, ConversationLock)
        turns = await change(refs.store, lambda tables: tables.histories.before(OWNER, conversation="conv_1"))
        assert len(turns.turns) == 1


async def test_a_request_that_does_not_fit_is_refused_and_not_stored(settings: Settings) -> None:
    async with open_system(attrs.evolve(settings, max_context=64)) as system:
        for background in (False, True):
            message = start("resp_1", background=background)
            message = attrs.evolve(message, request=attrs.evolve(message.request, input=long_input()))
            answer = await system.refs.responses.ask(message, Subscribed)
            if isinstance(answer, Subscribed):
                answer = await answer.subscription.wait_ended()  # type: ignore[assignment]
            assert isinstance(answer, Failed)
            assert answer.problem.code == "context_length_exceeded"
            assert isinstance(await retrieve(system.refs, "resp_1"), Problem)


def long_input() -> RequestInput:
    return chat("qwen3", prompt="word " * 500).input


@pytest.mark.parametrize("background", [False, True])
async def test_a_crashed_model_fails_its_runs_which_are_stored(settings: Settings, background: bool) -> None:
    engines = FaultyEngines(settings, Faults(crash={"resp_1"}))
    async with open_system(settings, engines=engines) as system:
        events = await read(
            await subscribe(system.refs, start("resp_1", background=background, max_tokens=LONG))
        )
        end = events[-1]
        assert isinstance(end, RunEnded)
        assert end.problem is not None
        assert end.problem.code == "model_crashed"
        stored = await retrieve(system.refs, "resp_1")
        assert isinstance(stored, StoredResponse)
        assert (stored.status, json.loads(stored.body)["error"]) == ("failed", "model_crashed")
        assert json.loads(stored.body)["text"] == text_of(events)


async def test_a_run_whose_record_raises_fails_alone(settings: Settings) -> None:
    def write(outcome: RunOutcome) -> StoredResponse:
        raise RuntimeError("planted")

    async with open_system(settings) as system:
        other = await subscribe(system.refs, start("resp_2", max_tokens=40))
        broken = attrs.evolve(start("resp_1"), write=write)
        end = await (await subscribe(system.refs, broken)).wait_ended()
        assert isinstance(end, Failed)
        assert end.problem.code == "internal_error"
        answer = await system.refs.responses.ask(attrs.evolve(broken, background=True), Subscribed)
        assert isinstance(answer, Failed)
        assert isinstance((await read(other))[-1], RunEnded)


async def test_an_actor_that_fails_is_replaced_and_its_runs_are_stored_as_failed(settings: Settings) -> None:
    async with open_system(settings) as system, trio.open_nursery() as nursery:
        actor = Responses(system.refs.pool, system.refs.store, system.refs.tools)
        refs = attrs.evolve(system.refs, responses=actor.ref)
        nursery.start_soon(actor.run)
        reader = await subscribe(refs, start("resp_1", max_tokens=LONG))
        await read_until_text(reader)
        actor._control.send(object())
        end = (await read(reader))[-1]
        assert isinstance(end, RunEnded)
        assert end.problem is not None
        assert (end.problem.status, end.problem.code) == (503, "responses_crashed")
        stored = await retrieve(refs, "resp_1")
        assert isinstance(stored, StoredResponse)
        assert stored.status == "failed"
        assert (await run(refs, start("resp_2"))).status == "incomplete"
        nursery.cancel_scope.cancel()


async def test_runs_that_are_left_at_the_end_are_stored(settings: Settings, tmp_path: object) -> None:
    stored: list[object] = []
    settings = attrs.evolve(settings, db=f"{tmp_path}/store.db")
    async with open_system(settings) as system:
        readers = [
            await subscribe(system.refs, start(f"resp_{number}", background=number > 0, max_tokens=LONG))
            for number in range(3)
        ]
        for reader in readers:
            await read_until_text(reader)
    for reader in readers:
        end = (await read(reader))[-1]
        assert isinstance(end, RunEnded)
        stored.append(end.response)
    assert {response.status for response in stored if isinstance(response, StoredResponse)} == {"failed"}
    async with open_system(settings) as system:
        assert [await retrieve(system.refs, f"resp_{number}") for number in range(3)] == stored


async def test_what_drains_for_too_long_fails_and_is_stored(settings: Settings) -> None:
    settings, faults = attrs.evolve(settings, shutdown_timeout=2.0), Faults(slow={"resp_1": 0.05})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        reader = await subscribe(system.refs, start("resp_1", background=True, max_tokens=LONG))
        await read_until_text(reader)
        await system.drain()
        end = (await read(reader))[-1]
        assert isinstance(end, RunEnded)
        assert end.problem is not None
        assert (end.response.status, end.problem.code) == ("failed", "draining")
        assert await retrieve(system.refs, "resp_1") == end.response


async def test_draining_takes_nothing_new_and_waits_for_what_runs(settings: Settings) -> None:
    async with open_system(settings) as system:
        refs = system.refs
        reader = await subscribe(refs, start("resp_1", background=True, max_tokens=100))
        await refs.responses.tell(Drain())
        for message in (start("resp_2"), start("resp_3", background=True), LockConversation(OWNER, "conv_1")):
            answer = await refs.responses.ask(message, Subscribed)
            assert isinstance(answer, Failed)
            assert answer.problem.code == "draining"
        assert await refs.responses.ask(Drain(), Drained) == Drained()
        assert isinstance(reader.receive_ready()[-1], RunEnded)


async def test_a_background_run_that_is_given_up_before_it_is_accepted_is_not_stored(
    settings: Settings,
) -> None:
    async with open_system(settings) as system:
        with trio.CancelScope() as scope:
            scope.cancel()
            await system.refs.responses.ask(start("resp_0", background=True), Subscribed)
        for delay in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    message = start(f"resp_{delay}", background=True, max_tokens=4)
                    nursery.start_soon(system.refs.responses.ask, message, Subscribed)
                    for _ in range(delay):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        assert await drained(system)


async def test_a_background_run_that_cannot_be_stored_in_time_is_refused_and_leaves_no_row(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "STORING", 0.2)
    goes_on = threading.Event()
    async with open_system(settings) as system:
        await system.refs.store.tell(Run(lambda tables: goes_on.wait(300.0)))
        try:
            refused = await system.refs.responses.ask(start("resp_1", background=True), Subscribed)
        finally:
            goes_on.set()
        assert isinstance(refused, Failed)
        assert refused.problem.code == "store_busy"
        gone = await retrieve(system.refs, "resp_1")
        assert isinstance(gone, Problem)
        assert gone.status == 404
        assert await drained(system)


async def drained(system: System) -> bool:
    with trio.fail_after(300):
        return await system.refs.responses.ask(Drain(), Drained) == Drained()


async def test_eight_runs_at_once_each_end_as_their_own(settings: Settings) -> None:
    async with open_system(settings) as system:
        alone = await run(system.refs, start("resp_alone", max_tokens=30))
        stored: dict[str, StoredResponse] = {}

        async def one(message: StartRun) -> None:
            stored[message.id] = await run(system.refs, message)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                message = start(f"resp_{number}", background=number % 2 == 1, max_tokens=30)
                nursery.start_soon(one, message)
        assert len(stored) == 8
        assert {response.raw for response in stored.values()} == {alone.raw}
        for ident, response in stored.items():
            assert await retrieve(system.refs, ident) == response
