"""Conversations that outgrow the context, with real templates and tokenizers."""

from __future__ import annotations

import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.schemas.messages.messages import MAX_MESSAGES, Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.tests.support.templates.chat_adapters import Folder, MakeAdapter, adapter_of, refusal

SYSTEM = Message("system", (TextPart("You are terse."),))
TOOLS = (Tool("weather", "Tells the weather.", {"type": "object", "properties": {}}),)


def said(role: str, text: str) -> Message:
    return Message(role, (TextPart(text),))  # type: ignore[arg-type]


def talk(turns: int, words: int = 40) -> tuple[Message, ...]:
    pairs = ((said("user", f"q{i} " + "word " * words), said("assistant", f"a{i}")) for i in range(turns))
    return (SYSTEM, *(message for pair in pairs for message in pair), said("user", "the last question"))


def asked(messages: tuple[Message, ...], overflow: str = "drop_oldest", **overrides: int) -> InferenceRequest:
    chat = ChatInput(messages, TOOLS)
    return InferenceRequest("r", ModelKey("m"), chat, overrides, overflow=overflow)  # type: ignore[arg-type]


def text_of(model: Adapter, prepared: PreparedPrompt) -> str:
    return model.tokenizer.decode(prepared.tokens)


@pytest.mark.parametrize("name", ["qwen", "llama", "mistral", "gemma", "liquid", "strict_system"])
def test_the_oldest_turns_are_dropped_where_that_is_asked_for(adapter: MakeAdapter, name: str) -> None:
    model = adapter(name, context=2048)
    messages = talk(60)
    assert refusal(model, asked(messages, "refuse")).code == "context_length_exceeded"
    prepared = model.prepare_input(asked(messages))
    assert prepared.prompt_tokens <= 2048 * 3 // 4
    assert prepared.prompt_tokens >= 2048 * 3 // 8
    shown = text_of(model, prepared)
    dropped = prepared.dropped_messages
    # Whole, earliest turns are dropped, so the number is even; the rest starts with the next question.
    assert dropped % 2 == 0
    assert [f"q{i} " in shown for i in range(60)] == [i >= dropped // 2 for i in range(60)]
    assert "You are terse." in shown
    assert "the last question" in shown
    assert "weather" in shown
    contents = model.render_prompt(asked(messages))
    assert (contents.tokens, contents.dropped_messages) == (prepared.tokens, dropped)


def test_what_fits_is_left_as_it_is(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=2048)
    short = talk(5)
    kept, plain = model.prepare_input(asked(short)), model.prepare_input(asked(short, "refuse"))
    assert (kept.tokens, kept.checkpoints) == (plain.tokens, plain.checkpoints)
    assert kept.dropped_messages == 0


def test_as_much_is_left_for_the_answer_as_it_may_take_up_to_a_quarter(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=2048)
    longest = 0
    for turns in range(20, 60, 5):
        for max_tokens in (1, 100, 2000):
            prepared = model.prepare_input(asked(talk(turns), max_tokens=max_tokens))
            assert prepared.max_tokens >= min(max_tokens, 512)
            longest = max(longest, prepared.prompt_tokens)
    assert longest > 2048 * 3 // 4


@pytest.mark.deep
def test_the_cut_stays_for_several_turns_so_that_their_beginning_is_known(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=4096)
    cuts = [model.prepare_input(asked(talk(turns, 20))).dropped_messages for turns in range(1, 80)]
    assert cuts == sorted(cuts)
    over = [cut for cut in cuts if cut]
    assert len(set(over)) <= len(over) // 5


def test_a_call_keeps_its_result_and_is_dropped_with_it(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=1024)
    late: list[Message] = [SYSTEM]
    for i in range(30):
        call = ToolCall(f"call_{i}", "weather", "{}")
        late += [
            said("user", f"q{i}"),
            Message("assistant", (), tool_calls=(call,)),
            said("user", f"meanwhile{i} " + "word " * 10),
            Message("tool", (TextPart(f"result{i}"),), tool_call_id=f"call_{i}"),
        ]
    prepared = model.prepare_input(asked((*late, said("user", "now?"))))
    shown = text_of(model, prepared)
    assert prepared.dropped_messages % 4 == 0
    kept = [i for i in range(30) if f"result{i}\n" in shown]
    assert kept == list(range(prepared.dropped_messages // 4, 30))


def test_a_last_turn_that_does_not_fit_is_refused_and_one_that_just_fits_is_not(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=1024)
    messages = talk(20)
    problem = refusal(model, asked((*messages, said("user", "word " * 2000))))
    assert problem.code == "context_length_exceeded"
    assert "without the 41 messages of all earlier turns" in problem.detail
    shortest = model.prepare_input(asked((SYSTEM, said("user", "word"))))
    longer = model.prepare_input(asked((SYSTEM, said("user", "word " * 101))))
    words = (1000 - shortest.prompt_tokens) * 100 // (longer.prompt_tokens - shortest.prompt_tokens)
    prepared = model.prepare_input(asked((*messages, said("user", "word " * words))))
    assert prepared.dropped_messages == 41
    assert 768 < prepared.prompt_tokens < 1024
    alone = refusal(model, asked((SYSTEM, said("user", "word " * 2000))))
    assert "earlier turns" not in alone.detail


def test_what_is_wrong_with_a_conversation_is_named_where_it_stands(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=1024)
    stray = Message("tool", (TextPart("5"),), tool_call_id="call_x")
    messages = talk(200)
    problem = refusal(model, asked((*messages[:3], stray, *messages[3:])))
    assert problem.param == "messages[3].tool_call_id"


def test_ten_thousand_messages_cost_little_more_than_to_look_at_them(folder: Folder) -> None:
    """Only as much of a conversation is rendered as may fit, a few times, however long it is."""
    model = adapter_of(folder("qwen"), context=4096)
    rendered: list[int] = []
    render = model.tokenizer.render

    def counted(messages: list[object], **options: object) -> str:
        rendered.append(len(messages))
        return render(messages, **options)  # type: ignore[arg-type]

    model.prepare_input(asked(talk(1)))  # which looks once at how the template shows each tool
    model.tokenizer.render = counted  # type: ignore[method-assign, assignment]
    messages = talk(MAX_MESSAGES // 2 - 1, words=10)
    prepared = model.prepare_input(asked(messages))
    kept = len(messages) - prepared.dropped_messages
    assert kept > 20
    # The whole is rendered once, since its length alone does not decide; then little more than fits.
    assert rendered[0] == len(messages) == MAX_MESSAGES
    assert 2 < len(rendered) <= 10
    assert all(count <= 5 * kept for count in rendered[1:])


def test_megabytes_are_never_rendered(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=4096)
    longest = model.tokenizer.longest_token
    rendered: list[int] = []
    render = model.tokenizer.render

    def counted(messages: list[dict[str, str]], **options: object) -> str:
        text = render(messages, **options)  # type: ignore[arg-type]
        rendered.append(len(text))
        return text

    model.tokenizer.render = counted  # type: ignore[method-assign]
    words = 10_000
    prepared = model.prepare_input(asked(talk(200, words)))
    assert 200 * words * 5 > 4096 * longest
    assert prepared.dropped_messages == 400
    assert max(rendered) < 1_100_000
