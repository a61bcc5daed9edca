"""Tests of the comparison of prompts: places and figures are exact, and no client sees another's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from greenroom.engine.adapters.conversation_prompts import outline_prompt
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.explanation import KnownPrompt, PromptHistory, find_difference
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.memory_tier import pack
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.explanation import Explanation
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.prepared_input import PromptOutline
from greenroom.tests.support.engines.text_engines import Driver
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import ask, turn_ends, words

CLIENT = ("127.0.0.1", None)


def raw(tokens: Sequence[int]) -> KnownPrompt:
    return KnownPrompt(pack(tokens), None, 0)


def chat(*texts: str, tools: Sequence[Tool] = (), written: int = 0, dropped: int = 0) -> KnownPrompt:
    """Return a conversation whose tokens are those of its texts; the server has written the first ones."""
    roles = ("system", "user", "assistant")
    messages = [Message(roles[i and 1 + (i - 1) % 2], (TextPart(text),)) for i, text in enumerate(texts)]  # type: ignore[arg-type]
    sent = messages[written:]
    rendered = [*messages[:written], *sent[dropped:]]
    tokens = [ord(letter) for message in rendered for letter in (*message.text, "\x02")]
    outline = outline_prompt(sent, rendered, tools, dropped)
    return KnownPrompt(pack([len(tools), *tokens]), outline, len(tokens) + 1)


def test_what_both_have_behind_a_change_is_counted_to_the_token() -> None:
    generator = random.Random(1)
    for _ in range(200):
        head, tail = generator.randrange(200), generator.randrange(60, 3000)
        old, new = generator.randrange(1, 60), generator.randrange(1, 60)
        common = words(tail, 5)
        earlier = raw([*words(head, 1), *words(old, 2), *common, *words(30, 3)])
        prompt = raw([*words(head, 1), *words(new, 4), *common, *words(50, 6)])
        difference = find_difference(prompt, earlier)
        assert (difference.part, difference.shared) == ("prompt", head)
        assert difference.again == ((head + new, head + new + tail),)
        assert difference.repeated(head, head + new + tail + 49) == tail
        assert difference.repeated(head + new + 10, head + new + tail) == tail - 10


def test_texts_that_repeat_themselves_are_aligned_where_most_is_equal() -> None:
    line = words(20, 1)
    earlier = raw([5, *line * 40, *words(300, 2)])
    prompt = raw([6, 7, *line * 40, *words(300, 2), *words(50, 3)])
    assert find_difference(prompt, earlier).again == ((2, 2 + 800 + 300),)


def test_a_prompt_that_continues_another_differs_nowhere() -> None:
    first = chat("You help.", "Hello", "Hi", "More")
    assert find_difference(chat("You help.", "Hello", "Hi", "More", "Yes", "On"), first).part is None
    assert find_difference(first, chat("You help.", "Hello", "Hi", "More", "Yes", "On")).part is None
    assert find_difference(raw(words(90, 1)), raw(words(50, 1))).part is None


@pytest.mark.parametrize(
    ("prompt", "part", "index", "role"),
    [
        (chat("You helped.", "Hello", "Hi", "More"), "message", 0, "system"),
        (chat("You help.", "Hello", "Ho", "More"), "message", 2, "assistant"),
        (chat("You help.", "Hello", "Hi", "Less"), "message", 3, "user"),
        (chat("You help.", "Hello", "Hi", "More", tools=[Tool("a")]), "tool", 0, None),
        (chat("You heal.", "Hello", "Hi", "More", written=1), "system_prompt", None, None),
        (chat("You help.", "Hello", "Hi", "More", dropped=1), "history", None, None),
    ],
)
def test_the_first_part_that_differs_is_named(
    prompt: KnownPrompt, part: str, index: int | None, role: str | None
) -> None:
    found = find_difference(prompt, chat("You help.", "Hello", "Hi", "More"))
    assert (found.part, found.index, found.role) == (part, index, role)


def test_equal_messages_with_other_tokens_are_the_templates() -> None:
    earlier = chat("You help.", "Hello", "Hi", "More")
    other = KnownPrompt(pack([9, *range(40)]), earlier.outline, earlier.turns_end)
    assert find_difference(other, earlier).part == "template"


def test_outlines_hold_no_text_and_ignore_the_ids_of_calls() -> None:
    def outline(ident: str, arguments: str) -> PromptOutline:
        call = Message("assistant", tool_calls=(ToolCall(ident, "find", arguments),))
        return outline_prompt([call], [call], [Tool("find", "Secret words")], 0)

    assert outline("call_1", "{}") == outline("call_2", "{}")
    assert outline("call_1", "{}") != outline("call_1", '{"a":1}')
    assert "Secret" not in repr(outline("call_1", "{}"))
    assert b"Secret" not in b"".join(part.digest for part in outline("call_1", "{}").tools)


def test_a_session_is_compared_with_itself_whatever_else_its_client_asks() -> None:
    history = PromptHistory()
    turns = ["You help with files and tests.", "Hello", "Hi"]
    assert history.compare(CLIENT, chat(*turns, "One")) is None
    for number in range(100):
        history.compare(CLIENT, chat("You write titles.", f"Title of {number}"))
    found = history.compare(CLIENT, chat("You assist with files and tests.", *turns[1:], "One"))
    assert found is not None
    assert (found.part, found.index, found.role) == ("message", 0, "system")


def test_clients_and_adapters_are_never_compared() -> None:
    history = PromptHistory()
    history.compare(CLIENT, raw(words(100, 1)))
    assert history.compare(("127.0.0.1#key", None), raw(words(100, 1))) is None
    assert history.compare(("127.0.0.1", "lora"), raw(words(100, 1))) is None


def test_the_history_keeps_within_its_bytes_whoever_fills_it() -> None:
    history = PromptHistory(budget=100_000)
    for number in range(300):
        history.compare((f"client {number}", None), raw(words(200 + number, number)))
        assert history.nbytes <= 100_000
    history.compare(CLIENT, raw(range(100_000)))  # larger than the whole: not kept
    assert history.compare(CLIENT, raw(range(100_000))) is None
    assert history.nbytes <= 100_000


BUDGET = 1 << 24
FINGERPRINT = "0123456789abcdef" * 2


def explain(driver: Driver, prompt: list[int], client: str = "") -> tuple[Explanation, Finished]:
    request = driver.submit(prompt, 2, client=client, checkpoints=turn_ends(prompt))
    driver.run()
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    assert last.explanation is not None
    return last.explanation, last


def test_a_changed_prompt_costs_what_is_computed_again(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(BUDGET))
    explain(driver, [*words(100, 1), 7, *words(400, 2)], "127.0.0.1")
    changed = [*words(100, 1), 8, 9, *words(400, 2), *words(98, 3)]
    explanation, finished = explain(driver, changed, "127.0.0.1#@7")  # beside other programs
    prefix = explanation.prefix
    assert (prefix.reason, prefix.part) == ("changed", "prompt")
    assert (prefix.shared_tokens, prefix.repeated_tokens) == (100, 400)
    assert explanation.cached.memory == finished.usage.cached == 100
    assert prefix.repeated_seconds == pytest.approx(finished.timing.prefill * 400 / 500, rel=0.01)


def test_an_evicted_prompt_is_told_from_a_changed_one(tiny_model: TinyModel) -> None:
    cache = PrefixCache(BUDGET)
    driver = Driver(tiny_model("qwen3"), prefix_cache=cache)
    prompt = words(300, 1)
    explain(driver, prompt, "127.0.0.1#key@7")
    cache.memory.evict_to(0)
    explanation, _ = explain(driver, [*prompt, *words(20, 2)], "127.0.0.1#key")
    assert explanation.prefix.reason == "not_cached"
    assert explanation.prefix.repeated_tokens == 300


def test_a_model_with_states_names_its_lack_of_a_checkpoint(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("lfm2"), prefix_cache=PrefixCache(BUDGET))
    explain(driver, words(300, 1))
    explanation, finished = explain(driver, [*words(200, 1), *words(50, 2)])
    assert finished.usage.cached == 0
    assert (explanation.prefix.reason, explanation.prefix.repeated_tokens) == ("no_checkpoint", 200)


def test_without_a_cache_the_reason_is_that(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(0))
    reasons = [explain(driver, words(100, 1))[0].prefix.reason for _ in range(2)]
    assert reasons == ["off", "off"]


def test_tokens_of_the_disk_are_counted_apart(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, prompt = tiny_model("qwen3"), words(500, 1)
    first = Driver(folder, prefix_cache=PrefixCache(BUDGET, DiskTier(tmp_path, FINGERPRINT, 1 << 30)))
    ask(first, prompt)
    first.engine.close()
    second = Driver(folder, prefix_cache=PrefixCache(BUDGET, DiskTier(tmp_path, FINGERPRINT, 1 << 30)))
    longer = [*prompt, *words(50, 2)]
    from_disk, finished = explain(second, longer)
    from_memory, _ = explain(second, longer)
    assert (from_disk.cached.memory, from_disk.cached.disk) == (0, finished.usage.cached)
    assert from_disk.cached.disk >= 499
    assert from_disk.prefix.reason == "first"
    assert (from_memory.cached.memory, from_memory.cached.disk) == (549, 0)


@pytest.mark.deep
def test_preempted_answers_tell_how_often_and_what_was_computed_again(tiny_model: TinyModel) -> None:
    account = MemoryAccount(kv_limit=4 << 20)
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(1 << 26), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 1
    for seed in range(7):
        driver.submit(words(230, seed), 40)
    driver.run()
    ends = [events[-1] for events in driver.events.values()]
    told = [end.explanation.preempted for end in ends if isinstance(end, Finished) and end.explanation]
    assert len(told) == 7
    statistics = driver.engine.statistics().admission
    assert sum(each.count for each in told) == statistics.preempted > 0
    for each in told:
        assert (each.tokens > 0) == (each.seconds > 0) == (each.count > 0)


def test_a_prompt_tells_that_it_waited_for_another_with_its_beginning(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(BUDGET))
    system = words(900, 4)
    requests = [driver.submit(system + words(20, seed), 4) for seed in (1, 2)]
    driver.run()
    waits = []
    for request in requests:
        last = driver.events[request][-1]
        assert isinstance(last, Finished)
        assert last.explanation is not None
        waits.append(last.explanation.waits)
        total = waits[-1].memory + waits[-1].prefix + waits[-1].turn
        assert total == pytest.approx(last.timing.queued, abs=1e-3)
    assert waits[0].prefix == 0.0
    assert waits[1].prefix > 0.0
