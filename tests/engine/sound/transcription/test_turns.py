"""Recordings take fair turns within windows, can be cancelled, and wait for memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.resources import fair_queue
from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.sound.transcription.recognizers import Recognizer
from greenroom.engine.sound.transcription.transcription_engine import RunningTranscription
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Segment
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.transcription_engines import Transcriber, open_transcriber
from greenroom.tests.support.media.hanging_recordings import decoding_threads
from greenroom.tests.support.media.recordings import noise, write_recording
from greenroom.tests.support.models.tiny_whisper import TEXT
from greenroom.tests.support.servers.bounded_waits import wait_until


@pytest.fixture
def short(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "short.wav", noise(3))


@pytest.fixture
def long(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "long.flac", noise(65), "flac")


@pytest.mark.deep
def test_a_short_recording_is_not_held_up_by_a_long_one(
    english: Transcriber, short: Path, long: Path
) -> None:
    first = english.submit(long, client="one")
    english.step()
    second = english.submit(short, client="two")
    while not english.ended(second):
        english.step()
    told = [event for event in english.events[first] if isinstance(event, Segment)]
    assert len(told) < 3
    english.run()
    for request, windows in ((first, 3), (second, 1)):
        assert sum(isinstance(event, Segment) for event in english.events[request]) == windows


@pytest.mark.deep
def test_recordings_take_turns_within_a_window(
    english: Transcriber, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "BUDGET_SECONDS", 0.0)
    requests = [english.submit(short, client=client) for client in ("one", "two", "three")]
    order = note_turns(english, monkeypatch)
    rounds = min(order.count(request) for request in requests)
    assert rounds > 8
    assert order[: 3 * rounds] == requests * rounds


@pytest.mark.deep
def test_recordings_under_made_up_keys_share_the_turns_of_their_address(
    english: Transcriber, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "BUDGET_SECONDS", 0.0)
    first, second, modest = [english.submit(short, client=client) for client in ("one#a", "one#b", "two")]
    order = note_turns(english, monkeypatch)
    assert order[:8] == [first, modest, second, modest] * 2


def note_turns(english: Transcriber, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run to the end; return the recording of each step."""
    order: list[str] = []
    advance = RunningTranscription.advance

    def advance_and_note(
        running: RunningTranscription, recognizer: Recognizer, clock: TimeBudget
    ) -> list[InferenceEvent]:
        order.append(running.request_id)
        return advance(running, recognizer, clock)

    monkeypatch.setattr(RunningTranscription, "advance", advance_and_note)
    english.run()
    return order


@pytest.mark.deep
def test_a_recording_is_heard_on_by_the_next_engine_behind_the_windows_that_are_told(
    english: Transcriber, english_folder: Path, long: Path, short: Path
) -> None:
    alone = english.submit(long)
    english.run()
    expected = [event for event in english.events.pop(alone) if isinstance(event, Segment)]
    heard, waiting = english.submit(long), english.submit(short)
    while not any(isinstance(event, Segment) for event in english.events[heard]):
        english.step()
    while (suspended := english.engine.suspend()) is None:
        english.step()
    assert heard in suspended
    assert not english.engine.has_work
    english.engine.close()
    with open_transcriber(english_folder) as following:
        for request, running in suspended.items():
            following.events[request] = []
            following.engine.resume(running)
        following.run()
        for request, length in ((heard, 65), (waiting, 3)):
            events = english.events[request] + following.events.get(request, [])
            told = [event for event in events if isinstance(event, Segment)]
            assert told == expected if request == heard else len(told) == 1
            assert isinstance(events[-1], Finished)
            assert events[-1].usage.heard == pytest.approx(length, abs=0.1)


@pytest.mark.deep
def test_few_windows_are_begun_however_many_recordings_there_are(
    english: Transcriber, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "BUDGET_SECONDS", 0.0)
    requests = [english.submit(short, client=f"client {number}") for number in range(6)]
    begun = 0
    while english.engine.has_work:
        english.step()
        begun = max(begun, sum(each.in_piece for each in english.engine._queue))
    assert begun == 4
    assert all(english.ended(request) for request in requests)


def test_a_crash_concerns_no_recording_of_which_nothing_was_read(english: Transcriber, short: Path) -> None:
    english.submit(short)
    english.step()
    late = english.submit(short, client="late")
    assert set(english.engine.unbegun()) == {late}


def test_a_crashed_engine_keeps_no_recording_that_another_one_resumes(
    english: Transcriber, english_folder: Path, short: Path
) -> None:
    waiting = english.submit(short)
    left = english.engine.unbegun()
    assert not english.engine.has_work
    english.engine.cancel(waiting)
    english.engine.close()
    with open_transcriber(english_folder) as following:
        following.events[waiting] = []
        following.engine.resume(left[waiting])
        following.run()
        assert "".join(e.text for e in following.events[waiting] if isinstance(e, Segment)) == TEXT


def test_many_of_one_client_do_not_hold_up_another(english: Transcriber, short: Path, long: Path) -> None:
    many = [english.submit(long, client="greedy") for _ in range(3)]
    english.step()
    alone = english.submit(short, client="modest")
    while not english.ended(alone):
        english.step()
    assert not any(english.ended(request) for request in many)
    for request in many:
        english.engine.cancel(request)
    english.run()


@pytest.mark.deep
def test_a_cancelled_recording_ends_at_the_next_step_with_what_it_used(
    english: Transcriber, short: Path, long: Path
) -> None:
    cancelled = english.submit(long)
    while not any(isinstance(event, Segment) for event in english.events[cancelled]):
        english.step()
    other = english.submit(short)
    english.engine.cancel(cancelled)
    english.step()
    end = english.events[cancelled][-1]
    assert isinstance(end, Finished)
    assert end.reason == "cancelled"
    assert 20 < end.usage.heard < 65
    assert end.usage.generated > 0
    english.run()
    assert "".join(e.text for e in english.events[other] if isinstance(e, Segment)) == TEXT
    english.engine.cancel("nobody")
    assert not english.engine.has_work


def test_closing_ends_the_threads_that_decode(english: Transcriber, long: Path) -> None:
    english.submit(long)
    english.step()
    english.engine.close()
    wait_until(lambda: not decoding_threads())


def test_windows_are_charged_while_they_are_computed(english_folder: Path, short: Path) -> None:
    account = MemoryAccount()
    with open_transcriber(english_folder, account) as transcriber:
        weights = account.statistics().weights
        assert weights > 100_000
        transcriber.submit(short)
        transcriber.run()
        assert account.statistics().peak > 1_000_000
        assert account.statistics().running == 0
    assert account.statistics().weights == 0


@pytest.mark.deep
def test_without_memory_for_two_windows_recordings_follow_each_other(
    english_folder: Path, short: Path
) -> None:
    probe = MemoryAccount()
    with open_transcriber(english_folder, probe) as transcriber:
        transcriber.submit(short)
        transcriber.run()
        weights, window = probe.statistics().weights, probe.statistics().peak
    account = MemoryAccount(weights + window * 3 // 2)
    with open_transcriber(english_folder, account) as transcriber:
        requests = [transcriber.submit(short, client=client) for client in ("one", "two")]
        transcriber.run()
        assert account.statistics().peak <= window
        for request in requests:
            assert isinstance(transcriber.events[request][-1], Finished)


def test_a_window_that_never_fits_is_refused(english_folder: Path, short: Path) -> None:
    probe = MemoryAccount()
    with open_transcriber(english_folder, probe):
        weights = probe.statistics().weights
    with open_transcriber(english_folder, MemoryAccount(weights + 1000)) as transcriber:
        request = transcriber.submit(short)
        transcriber.run()
        end = transcriber.events[request][-1]
        assert isinstance(end, Failed)
        assert end.problem.status == 507


def test_a_file_that_is_gone_fails_its_request_alone(english: Transcriber, short: Path, long: Path) -> None:
    good = english.submit(short)
    with pytest.raises(ProblemError, match="gone"):
        english.submit(short.parent / "gone")
    english.run()
    assert isinstance(english.events[good][-1], Finished)


def test_a_file_that_is_cut_while_it_is_read_ends_its_request_alone(
    english: Transcriber, short: Path, long: Path
) -> None:
    spoiled = english.submit(long)
    long.write_bytes(b"")
    good = english.submit(short)
    english.run()
    end = english.events[spoiled][-1]
    assert isinstance(end, Failed | Finished)  # Audio read before the error may still be transcribed.
    if isinstance(end, Failed):
        assert (end.problem.status, end.problem.param) == (400, "file")
    assert isinstance(english.events[good][-1], Finished)
