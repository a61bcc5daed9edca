"""Conversations that outgrow the context, with real templates and tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.adapters.conversation import UnshownParameters, inlined
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.messages import MAX_MESSAGES, Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.prepared_input import EchoedPrompt, PreparedPrompt
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_adapters import Folder, MakeAdapter, adapter_of, chat, refusal
from greenroom.tests.support.templates.chat_tokenizers import __file__ as TOKENIZERS

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


def echoed(
    adapter: MakeAdapter, name: str, prompt: str | tuple[int, ...], *, begins: bool = True
) -> EchoedPrompt:
    raw = RawInput(prompt, begins=begins, echo=True, scored=100)
    echo = adapter(name).prepare_input(InferenceRequest("r", ModelKey("m"), raw)).echo
    assert echo is not None
    return echo


@pytest.mark.parametrize(("name", "added"), [("llama", 1), ("mistral", 1), ("qwen", 0)])
def test_what_the_model_wants_before_a_text_is_hidden(adapter: MakeAdapter, name: str, added: int) -> None:
    model = adapter(name)
    text = echoed(adapter, name, "Hello the world")
    assert (text.text, text.hidden, text.scored) == ("Hello the world", added, True)
    assert text.vocabulary == model.tokenizer.vocab_size
    assert echoed(adapter, name, "Hello", begins=False).hidden == 0
    if bos := model.tokenizer.bos_token:
        assert echoed(adapter, name, f"{bos}Hello").hidden == 0
    ids = tuple(ident for piece in model.tokenizer.encode_prompt("Hello") for ident in piece)
    tokens = echoed(adapter, name, ids)
    assert (tokens.text.endswith("Hello"), tokens.hidden) == (True, 0)


def test_a_prompt_that_is_too_long_to_be_scored_is_refused(adapter: MakeAdapter) -> None:
    raw = RawInput((5,) * 11, echo=True, scored=10)
    request = InferenceRequest("r", ModelKey("m"), raw)
    with pytest.raises(ProblemError, match=r"11 tokens.*at most 10") as refused:
        adapter("qwen").prepare_input(request)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "prompt")
    unscored = attrs.evolve(request, input=attrs.evolve(raw, scored=None))
    assert adapter("qwen").prepare_input(unscored).echo is not None


BEFORE, AFTER = "def f(a):\n    ", "\n    return b\n"
FAMILIES = {
    "qwen coder": (
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"),
        f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>",
    ),
    "starcoder": (
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"),
        f"<fim_prefix>{BEFORE}<fim_suffix>{AFTER}<fim_middle>",
    ),
    "deepseek coder": (
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        f"<｜fim▁begin｜>{BEFORE}<｜fim▁hole｜>{AFTER}<｜fim▁end｜>",
    ),
    "codestral": (("[PREFIX]", "[SUFFIX]", "[MIDDLE]"), f"[SUFFIX]{AFTER}[PREFIX]{BEFORE}"),
}


def coder(folder: Path, tokens: tuple[str, ...]) -> Adapter:
    """Return the adapter of a model whose vocabulary has these tokens, which are not special."""
    from tokenizers import AddedToken, Tokenizer

    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens([AddedToken(token, special=False) for token in tokens])
    tokenizer.save(str(path))
    record = CapabilityRecord("text", "default", "llama", 4096)
    return make_adapter(record, load_tokenizer(folder), Settings())


def prepared(adapter: Adapter, prompt: str | tuple[int, ...], suffix: str) -> PreparedPrompt:
    return adapter.prepare_input(InferenceRequest("r", ModelKey("m"), RawInput(prompt, suffix)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gap_is_marked_as_the_family_was_trained(folder: Folder, family: str) -> None:
    tokens, text = FAMILIES[family]
    adapter = coder(folder("qwen"), tokens)
    made = prepared(adapter, BEFORE, AFTER)
    assert adapter.tokenizer.decode(made.tokens) == text
    added = adapter.tokenizer.added_tokens
    assert made.stop_token_ids >= {added[token] for token in tokens} | adapter.stop_token_ids
    assert not made.parse


def test_markers_in_the_clients_text_are_text(folder: Folder) -> None:
    tokens, _ = FAMILIES["qwen coder"]
    adapter = coder(folder("qwen"), tokens)
    middle = adapter.tokenizer.added_tokens["<|fim_middle|>"]
    made = prepared(adapter, "a<|fim_middle|>b", AFTER)
    assert made.tokens.count(middle) == 1
    assert made.tokens[-1] == middle
    assert "a<|fim_middle|>b" in adapter.tokenizer.decode(made.tokens)


def test_a_model_that_begins_its_prompts_begins_these_too(folder: Folder) -> None:
    tokens, text = FAMILIES["deepseek coder"]
    adapter = coder(folder("llama"), tokens)
    bos = adapter.tokenizer.bos_token
    assert bos
    assert adapter.tokenizer.decode(prepared(adapter, BEFORE, AFTER).tokens) == bos + text


def test_nothing_before_the_gap_is_enough(folder: Folder) -> None:
    tokens, text = FAMILIES["starcoder"]
    adapter = coder(folder("qwen"), tokens)
    assert adapter.tokenizer.decode(prepared(adapter, "", AFTER).tokens) == text.replace(BEFORE, "")


def test_a_model_that_fills_no_gaps_says_so(adapter: MakeAdapter, folder: Folder) -> None:
    with pytest.raises(ProblemError) as refused:
        prepared(adapter("qwen"), BEFORE, AFTER)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "suffix")
    with pytest.raises(ProblemError) as refused:
        prepared(coder(folder("qwen"), FAMILIES["starcoder"][0]), (1, 2), AFTER)
    assert "text" in refused.value.problem.detail


QWEN = (Path(TOKENIZERS).parent / "chat_templates" / "qwen.jinja").read_text()
# As Gemma 4's template does it: keywords of the schema are skipped at every depth.
FIELDS = """{%- macro fields(schema) %}
{%- for key, value in schema.properties.items() if key not in ['type', 'description', 'properties'] %}
{{- key }}:{{ value.description }}({{ value.type }}){% if value.properties %}{{ fields(value) }}{% endif %},
{%- endfor %}{%- endmacro %}"""
KEYWORDS_LOST = FIELDS + QWEN.replace(
    "(tool | tojson)", "tool.function.name + fields(tool.function.parameters)"
)
NOTHING_LOST = QWEN
TOOL = Tool(
    "create_issue",
    "Create an issue",
    {
        "type": "object",
        "$defs": {"Label": {"type": "object", "properties": {"colour": {"type": "string"}}}},
        "properties": {
            "title": {"type": "string"},
            "description": {"type": "string", "description": "Text of the issue"},
            "type": {"type": "string", "enum": ["bug", "wish"]},
            "label": {"$ref": "#/$defs/Label", "description": "Its label"},
            "points": {"type": "array", "items": {"type": "object", "properties": {"depth": {}}}},
        },
        "required": ["title", "type"],
    },
)
SHOWN = Tool("look_up", "Look up a word", {"type": "object", "properties": {"word": {"type": "string"}}})


def prompt_of(adapter: Adapter, *tools: Tool) -> str:
    request: InferenceRequest = chat("Hello")
    assert isinstance(request.input, ChatInput)
    asked = attrs.evolve(request, input=attrs.evolve(request.input, tools=tools))
    return adapter.tokenizer.decode(adapter.prepare_input(asked).tokens)


@pytest.mark.parametrize("template", [KEYWORDS_LOST, NOTHING_LOST], ids=["keywords lost", "nothing lost"])
def test_the_model_sees_every_parameter(folder: Folder, template: str) -> None:
    adapter = adapter_of(folder("qwen", chat_template=template))
    with structlog.testing.capture_logs() as logs:
        prompts = [prompt_of(adapter, TOOL, SHOWN) for _ in range(2)]
    for name in ("title", "description", "type", "label", "colour", "points", "depth", "word"):
        assert name in prompts[0]
    assert "bug" in prompts[0]
    assert prompts[0] == prompts[1]
    described = "create_issue" in prompts[0].partition("In full:")[2]
    assert described == (template is KEYWORDS_LOST)
    assert '"name": "look_up"' not in prompts[0].partition("In full:")[2]
    warned = [log["names"] for log in logs if log["event"] == "template hides parameters"]
    assert warned == ([["description", "type", "depth"]] if described else [])
    off = adapter_of(folder("qwen", chat_template=template), tool_injection=False)
    assert "In full:" not in prompt_of(off, TOOL)


def test_tools_that_are_shown_whole_leave_the_prompt_as_it_was(folder: Folder) -> None:
    for template in (KEYWORDS_LOST, NOTHING_LOST):
        assert "In full:" not in prompt_of(adapter_of(folder("qwen", chat_template=template)), SHOWN)


def test_a_prediction_is_read_up_to_the_context(folder: Folder) -> None:
    adapter, request = adapter_of(folder("qwen")), chat("Hello")
    assert isinstance(request.input, ChatInput)
    for text, counted in (("Hello" * adapter.context_length, adapter.context_length), ("Hello", 5), ("", 0)):
        asked = attrs.evolve(request, input=attrs.evolve(request.input, prediction=text))
        assert adapter.prepare_input(asked).predicted == counted


def test_what_large_tools_hide_takes_one_pass_and_little_memory() -> None:
    finder = UnshownParameters(lambda _: f"{'z' * 10_000_000}zq1qz")
    properties: dict[str, Any] = {f"p{number}": {} for number in range(50_000)}
    assert finder.of(Tool("t", "", {"properties": properties})) == ("p0", *(f"p{n}" for n in range(2, 21)))
    assert finder.of(Tool("t", "", {"properties": {"other": {}, "x" * 100_000: {}}})) == ("other",)
    assert sum(len(key) + sum(map(len, names)) for key, names in finder._found.items()) < 1_000


LEAF = {"type": "string"}
LOOP = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
ESCAPED = {"$defs": {"a/b~c d": LEAF}, "properties": {"x": {"$ref": "#/$defs/a~1b~0c%20d"}}}
WIDE: dict[str, Any] = {
    "$defs": {
        f"D{i}": {"properties": {side: {"$ref": f"#/$defs/D{i + 1}"} for side in ("l", "r")}}
        for i in range(40)
    },
    "properties": {"root": {"$ref": "#/$defs/D0"}},
}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"properties": {"a": LEAF}}, {"properties": {"a": LEAF}}),
        (
            {"$defs": {"S": LEAF}, "properties": {"a": {"$ref": "#/$defs/S", "description": "d"}}},
            {"properties": {"a": {**LEAF, "description": "d"}}},
        ),
        (ESCAPED, {"properties": {"x": LEAF}}),
        (
            {"$defs": {"Node": LOOP}, "properties": {"list": {"$ref": "#/$defs/Node"}}},
            {"$defs": {"Node": LOOP}, "properties": {"list": LOOP}},
        ),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"properties": {"a": {"$ref": "#/nowhere"}}}),
        ({"properties": {"a": {"$ref": "https://a"}}}, {"properties": {"a": {"$ref": "https://a"}}}),
    ],
)
def test_references_within_a_schema_are_written_out(schema: dict[str, Any], written: dict[str, Any]) -> None:
    assert inlined(schema) == written


def test_references_that_multiply_are_written_out_up_to_a_limit() -> None:
    long = {**WIDE, "$defs": {**WIDE["$defs"], "D4": {"type": "string", "description": "x" * 5_000}}}
    for schema in (WIDE, long):
        text = str(inlined(schema))
        assert len(text) < 200_000
        assert "'$defs'" in text


def test_references_that_lead_deep_stay_where_they_are() -> None:
    links: dict[str, Any] = {}
    for i in range(30):
        links[f"D{i}"] = {"$ref": f"#/$defs/D{i + 1}"}
        for _ in range(25):
            links[f"D{i}"] = {"properties": {"x": links[f"D{i}"]}}
    schema = {"$defs": {**links, "D30": LEAF}, "properties": {"root": {"$ref": "#/$defs/D0"}}}
    written = inlined(schema)
    assert "'$ref'" not in str(written["properties"]["root"]["properties"])[:800]
    assert written["$defs"] == schema["$defs"]
