"""Token ids of prompts: their number, their limits and their end."""

from __future__ import annotations

import json
import time
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.catalog.families import FAMILIES
from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord, Family
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_adapters import Folder, adapter_of, chat, raw, refusal
from greenroom.tests.support.templates.chat_tokenizers import TEMPLATES, make_chat_tokenizer


def test_every_familys_default_parsers_exist() -> None:
    assert FAMILIES.keys() == set(get_args(Family))
    for family in FAMILIES.values():
        assert make_tool_parser(family.tool_parser).parser_id == family.tool_parser
        assert make_reasoning_parser(family.reasoning_parser).parser_id == family.reasoning_parser


def test_a_record_with_an_unknown_parser_fails_to_load(folder: Folder) -> None:
    record = CapabilityRecord("text", "qwen", "qwen3", 4096, tool_parser="nonsense")
    with pytest.raises(ProblemError) as caught:
        make_adapter(record, load_tokenizer(folder("qwen")), Settings())
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "load_failed")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_is_tokenized_as_transformers_does_it(folder: Folder, name: str) -> None:
    model = adapter_of(folder(name))
    parts = name == "parts"
    content: Any = [{"type": "text", "text": "Hello the world"}] if parts else "Hello the world"
    expected = model.tokenizer.wrapped._tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, return_dict=False
    )
    assert list(model.prepare_input(chat("Hello the world")).tokens) == expected


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma", "liquid"])
def test_a_prompt_begins_once(folder: Folder, name: str) -> None:
    model = adapter_of(folder(name))
    bos = model.tokenizer.added_tokens[str(model.tokenizer.bos_token)]
    assert model.prepare_input(chat("Hi")).tokens.count(bos) == 1
    assert model.prepare_input(raw("Hi")).tokens.count(bos) == 1
    assert model.prepare_input(raw(f"{model.tokenizer.bos_token}Hi")).tokens.count(bos) == 1


def test_lengths_default_and_are_clamped(folder: Folder) -> None:
    home = folder("qwen")
    model = adapter_of(home, context=1000)
    prompt = len(model.prepare_input(chat("Hi")).tokens)
    assert model.prepare_input(chat("Hi")).max_tokens == 500
    assert model.prepare_input(raw("Hi")).max_tokens == 16
    assert model.prepare_input(chat("Hi", max_tokens=7)).max_tokens == 7
    assert model.prepare_input(chat("Hi", max_tokens=32000)).max_tokens == 1000 - prompt
    assert model.prepare_input(raw((5,) * 990)).max_tokens == 10
    assert adapter_of(home, max_tokens=40).prepare_input(chat("Hi")).max_tokens == 40
    assert adapter_of(home, max_tokens=40).prepare_input(chat("Hi", max_tokens=7)).max_tokens == 7


def test_what_does_not_fit_is_refused_with_both_lengths(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=64)
    assert model.prepare_input(raw((5,) * 63)).max_tokens == 1
    problem = refusal(model, raw((5,) * 64))
    assert problem.code == "context_length_exceeded"
    assert "maximum context length is 64 tokens" in problem.detail
    assert "resulted in 64 tokens" in problem.detail
    assert refusal(model, chat("word " * 100)).code == "context_length_exceeded"


def test_the_operators_bound_is_below_the_models(folder: Folder) -> None:
    home = folder("qwen")
    assert adapter_of(home, context=4096, max_context=100).context_length == 100
    assert adapter_of(home, context=4096, max_context=10_000).context_length == 4096
    assert refusal(adapter_of(home, max_context=32), raw((5,) * 32)).code == "context_length_exceeded"


@pytest.mark.parametrize("unit", ["a", "the ", "<|im_end|>", "\u20ac"])
def test_an_absurdly_long_text_is_refused_at_once(folder: Folder, unit: str) -> None:
    """Refusal costs less than tokenizing a tenth of the text."""
    model = adapter_of(folder("qwen"))
    text = unit * (5_000_000 // len(unit))
    began = time.process_time()
    assert sum(map(len, model.tokenizer.encode_rendered(text[: len(text) // 10])))
    tokenized = time.process_time() - began
    began = time.process_time()
    assert refusal(model, raw(text)).code == "context_length_exceeded"
    assert refusal(model, chat(text)).code == "context_length_exceeded"
    assert time.process_time() - began < tokenized


def test_a_long_text_that_fits_is_counted_exactly(folder: Folder) -> None:
    model = adapter_of(folder("qwen"), context=600_000)
    assert len(model.prepare_input(raw("a" * 300_000)).tokens) == 300_000


@pytest.mark.parametrize("prompt", ["", ()])
def test_an_empty_prompt_is_refused(folder: Folder, prompt: Any) -> None:
    assert refusal(adapter_of(folder("llama")), raw(prompt)).param == "prompt"


def test_a_conversation_needs_messages(folder: Folder) -> None:
    assert refusal(adapter_of(folder("qwen")), chat()).param == "messages"


def test_token_ids_must_be_in_the_vocabulary(folder: Folder) -> None:
    model = adapter_of(folder("qwen"))
    most = model.tokenizer.vocab_size
    assert model.prepare_input(raw((0, most - 1))).tokens == (0, most - 1)
    for bad in (most, -1, True, 1.0, "a"):
        assert refusal(model, raw((0, bad))).param == "prompt[1]"


def test_a_model_without_a_template_continues_raw_text_only(folder: Folder) -> None:
    model = adapter_of(folder("llama", chat_template=None))
    assert model.traits is None
    assert "no chat template" in refusal(model, chat("Hi")).detail
    assert model.prepare_input(raw("Hi")).tokens


def test_a_template_beside_the_tokenizer_is_found(folder: Folder) -> None:
    home = folder("qwen", chat_template=None)
    (home / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    model = adapter_of(home)
    assert model.tokenizer.decode(model.prepare_input(chat("Hi")).tokens) == "<user>Hi"


def test_several_templates_by_name(folder: Folder) -> None:
    templates = [
        {"name": "default", "template": "{% for m in messages %}{{ m.content }}{% endfor %}"},
        {"name": "tool_use", "template": "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}"},
    ]
    model = adapter_of(folder("qwen", chat_template=templates), tool_injection=False)
    assert model.tokenizer.decode(model.prepare_input(chat("Hi")).tokens) == "Hi"
    tools = (Tool("get_time"),)
    request = InferenceRequest("r", ModelKey("m"), ChatInput((Message("user", (TextPart("Hi"),)),), tools))
    assert "get_time" in model.tokenizer.decode(model.prepare_input(request).tokens)


ENDS = {
    "qwen": {"<|im_end|>", "<|endoftext|>"},
    "llama": {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
    "gemma": {"<end_of_turn>", "<eos>"},
    "mistral": {"</s>"},
    "glm4": {"<|endoftext|>", "<|user|>", "<|observation|>"},
    "granite": {"<|end_of_text|>"},
    "liquid": {"<|im_end|>", "<|endoftext|>"},
    "gpt_oss": {"<|return|>", "<|call|>", "<|endoftext|>"},
}


@pytest.mark.parametrize("name", ENDS)
def test_a_turn_ends_at_its_familys_tokens(folder: Folder, name: str) -> None:
    model = adapter_of(folder(name), family=name)
    assert {model.tokenizer.decode([ident]) for ident in model.stop_token_ids} == ENDS[name]


@pytest.mark.parametrize(
    ("family", "token"),
    [
        ("gemma", "<|tool_response>"),
        ("gemma", "<start_function_response>"),
        ("apertus", "<|assistant_end|>"),
        ("apertus", "<|tools_suffix|>"),
    ],
)
def test_a_turn_ends_where_the_result_of_a_call_would_begin(tmp_path: Path, family: str, token: str) -> None:
    model = adapter_of(make_chat_tokenizer("gemma", tmp_path, added=(token,)), family=family)
    assert model.tokenizer.added_tokens[token] in model.stop_token_ids


def test_thinking_is_switched_in_the_words_of_the_template(folder: Folder) -> None:
    seed, gpt_oss, qwen = (adapter_of(folder(name)) for name in ("seed_oss", "gpt_oss", "qwen"))

    def prompt(model: Adapter, **options: object) -> tuple[str, bool]:
        turns = (Message("user", (TextPart("Hi"),)),)
        request = attrs.evolve(chat("Hi"), input=ChatInput(turns, template_options=options))
        prepared = model.prepare_input(request)
        return model.tokenizer.decode(prepared.tokens), prepared.starts_in_reasoning

    assert prompt(seed, enable_thinking=False)[0].endswith("<seed:think><seed:cot_budget_reflect>")
    assert prompt(seed, enable_thinking=False)[1], "the model says first that it will not think"
    settings: list[dict[str, object]] = [{}, {"enable_thinking": True}, {"thinking_budget": 512}]
    settings.append({"enable_thinking": False, "thinking_budget": 512})
    for options in settings:
        text, opened = prompt(seed, **options)
        assert ("budget is 0" in text, opened) == (False, False)
    assert "Reasoning: low" in prompt(gpt_oss, enable_thinking=False)[0]
    assert "Reasoning: high" in prompt(gpt_oss, enable_thinking=True, reasoning_effort="high")[0]
    assert "Reasoning: medium" in prompt(gpt_oss, enable_thinking=True)[0]
    assert prompt(qwen, enable_thinking=True) != prompt(qwen, enable_thinking=False)


def test_a_preamble_of_gpt_oss_is_commentary_between_thought_and_call(folder: Folder) -> None:
    model = adapter_of(folder("gpt_oss"))
    call = ToolCall("call_1", "look", '{"at": "it"}')
    turns = (
        Message("user", (TextPart("Hi"),)),
        Message("assistant", (TextPart("I look."),), reasoning="Should I?", tool_calls=(call,)),
        Message("tool", (TextPart("seen"),), tool_call_id="call_1"),
    )
    prompt = model.prepare_input(attrs.evolve(chat("Hi"), input=ChatInput(turns)))
    text = model.tokenizer.decode(prompt.tokens)
    assert (
        "<|start|>assistant<|channel|>analysis<|message|>Should I?<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant to=functions.look"
    ) in text


def test_ends_are_collected_from_every_file_and_from_the_request(folder: Folder) -> None:
    home = folder("deepseek")
    (home / "config.json").write_text(json.dumps({"model_type": "llama", "text_config": {"eos_token_id": 3}}))
    (home / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 5]}))
    model = adapter_of(home)
    end = model.tokenizer.added_tokens["<|end|>"]
    assert model.stop_token_ids == {3, 4, 5, end}
    assert model.prepare_input(chat("Hi", stop_token_ids=(9,))).stop_token_ids == {3, 4, 5, 9, end}
    assert model.prepare_input(chat("Hi", stop=("x",))).stop == ("x",)


def test_a_clients_parameters_go_before_the_operators_and_those_before_the_models(folder: Folder) -> None:
    home = folder("qwen")
    recommended = {"temperature": 0.6, "top_k": 20, "top_p": 7, "min_p": "x", "max_length": 20}
    (home / "generation_config.json").write_text(json.dumps(recommended))
    assert adapter_of(home).default_overrides == {"temperature": 0.6, "top_k": 20}
    prepared = adapter_of(home, top_k=7).prepare_input(chat("Hi", seed=1)).parameters
    assert prepared == GenerationParameters(max_tokens=2048, temperature=0.6, top_k=7, seed=1)
    assert adapter_of(home).prepare_input(chat("Hi", temperature=0.0)).parameters.temperature == 0.0
    (home / "generation_config.json").write_text("{")
    assert adapter_of(home).default_overrides == {}


def test_the_leading_space_of_raw_text_and_of_an_answer_is_kept(folder: Folder) -> None:
    model = adapter_of(folder("llama"))
    tail = list(chain.from_iterable(model.tokenizer.encode_rendered(" the\u20ac!")))
    texts = []
    for prepared in (model.prepare_input(raw("Behold")), model.prepare_input(chat("Behold"))):
        detokenizer = model.new_detokenizer(prepared)
        pieces = []
        for token in tail:
            detokenizer.add_token(token)
            pieces.append(detokenizer.last_segment)
        detokenizer.finalize()
        texts.append("".join(pieces) + detokenizer.last_segment)
    assert texts == [" the\u20ac!"] * 2


def test_a_broken_tokenizer_fails_to_load(folder: Folder, tmp_path: Path) -> None:
    home = folder("qwen")
    (home / "tokenizer.json").write_text("{}")
    for broken in (home, tmp_path):
        with pytest.raises(ProblemError) as caught:
            load_tokenizer(broken)
        assert caught.value.problem.code == "load_failed"


def test_a_tokenizer_that_is_code_is_refused(folder: Folder) -> None:
    home = folder("qwen", auto_map={"AutoTokenizer": ["evil.Evil", None]}, tokenizer_class="Evil")
    (home / "evil.py").write_text("raise SystemExit('ran foreign code')")
    with pytest.raises(ProblemError) as caught:
        load_tokenizer(home)
    assert caught.value.problem.code == "load_failed"


def test_a_template_that_does_nothing_but_fail_is_a_400_at_each_request(folder: Folder) -> None:
    model = adapter_of(folder("qwen", chat_template="{{ messages.nonsense.more }}"))
    assert refusal(model, chat("Hi")).code == "chat_template_error"
    speaking = refusal(
        adapter_of(folder("qwen", chat_template="{{ raise_exception('No jokes!') }}")), chat("Hi")
    )
    assert (speaking.param, speaking.detail[-9:]) == ("messages", "No jokes!")
    broken = adapter_of(folder("qwen", chat_template="{% if %}"))
    assert refusal(broken, chat("Hi")).code == "chat_template_error"
