"""Resource limits of models' chat templates, which must not change any rendering."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers.utils import chat_template_utils

from greenroom.engine.adapters.template_probe import render_conversation
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer.bounded_environment import BoundedEnvironment, bound_templates
from greenroom.engine.tokenizer.template_budget import TemplateLimitError
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.hostile.templates import BY_CONTENT, STOPPED
from greenroom.tests.support.templates.chat_tokenizers import make_chat_tokenizer
from greenroom.tests.support.templates.real_templates import adapter_of_template, packaged_templates

OWN = Path(__file__).resolve().parents[2] / "support" / "templates"
TEMPLATES = packaged_templates() | {
    f"{file.parent.name}/{file.stem}": file.read_text(encoding="utf-8") for file in OWN.glob("*/*.jinja")
}
TOOL = {
    "name": "get_weather",
    "description": "zq <b>",
    "parameters": {"type": "object", "properties": {"city": {"type": ["string", "null"]}}, "required": []},
}
NO_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def compiled(source: str, environment: type, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a template as transformers compiles it, in an environment of the given class."""
    bound_templates()
    monkeypatch.setattr(chat_template_utils, "ImmutableSandboxedEnvironment", environment)
    return chat_template_utils._cached_compile_jinja_template(source)


def talk(turns: int, *, calls: bool = False, as_text: bool = False) -> list[dict[str, Any]]:
    talked: list[dict[str, Any]] = [{"role": "system", "content": "You are <b>'good'\n"}]
    arguments: Any = json.dumps({"city": "Oslo"}) if as_text else {"city": "Oslo", "n": 1.5}
    function = {"name": "get_weather", "arguments": arguments}
    for turn in range(turns):
        talked.append({"role": "user", "content": " hello wörld \n\n" * turn})
        if calls:
            call = {"id": "call00001", "type": "function", "function": function}
            talked.append({"role": "assistant", "content": "", "tool_calls": [call], "thinking": "zq"})
            talked.append(
                {"role": "tool", "content": "22", "tool_call_id": "call00001", "name": "get_weather"}
            )
        talked.append({"role": "assistant", "content": f"<think>\nhm\n</think>\nanswer {turn}"})
    return [*talked, {"role": "user", "content": "last"}]


def parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]


TALKS = [talk(1), talk(3), talk(2, calls=True), talk(2, calls=True, as_text=True), parts(talk(2, calls=True))]


def rendered(template: Any, messages: list[dict[str, Any]], tools: Any, prompt: bool) -> str:
    given = {"bos_token": "<s>", "eos_token": "</s>", "enable_thinking": True}
    try:
        text: str = template.render(
            messages=copy.deepcopy(messages), tools=tools, add_generation_prompt=prompt, **given
        )
    except Exception as error:  # a refusal, too, must stay what it was
        text = f"{type(error).__name__}: {error}"
    return NO_ADDRESS.sub("", text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_renders_what_jinja_alone_renders(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = compiled(TEMPLATES[name], ImmutableSandboxedEnvironment, monkeypatch)
    bound = compiled(TEMPLATES[name], BoundedEnvironment, monkeypatch)
    assert not name.startswith("language") or "last" in rendered(alone, talk(1), None, True)
    tools = {"type": "function", "function": TOOL}
    for messages in TALKS:
        for given in (None, [tools], [tools, tools]):
            for prompt in (True, False):
                expected = rendered(alone, messages, given, prompt)
                assert rendered(bound, messages, given, prompt) == expected


@pytest.mark.parametrize("name", STOPPED)
def test_a_template_is_stopped_that_asks_for_too_much(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = compiled(STOPPED[name], BoundedEnvironment, monkeypatch)
    with pytest.raises(TemplateLimitError):
        template.render(messages=[{"role": "user", "content": "Hello"}])


def test_a_long_conversation_may_have_much_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "{% set ns = namespace(all='', kept=[]) %}{% for message in messages %}"
        "{% set ns.all = ns.all + message.content.split('\\n')|join('\\n') %}"
        "{% set ns.kept = ns.kept + [message] %}"
        "{{ messages|length }}{% endfor %}{{ ns.all }}{{ ns.kept|tojson(indent=2) }}{{ messages }}"
    )
    messages = [{"role": "user", "content": "a long line\n" * 400} for _ in range(300)]
    alone = compiled(source, ImmutableSandboxedEnvironment, monkeypatch)
    bound = compiled(source, BoundedEnvironment, monkeypatch)
    assert rendered(bound, messages, None, True) == rendered(alone, messages, None, True)


def test_a_model_is_refused_whose_template_asks_for_too_much_of_any_conversation(tmp_path: Path) -> None:
    import_text_libraries()
    with pytest.raises(ProblemError) as refused:
        adapter_of_template("qwen3", "{{ 'a' * 2000000000 }}", tmp_path)
    assert (refused.value.problem.status, refused.value.problem.code) == (503, "load_failed")
    assert "chat template" in refused.value.problem.detail


def test_a_request_is_refused_whose_content_makes_a_template_ask_for_too_much(tmp_path: Path) -> None:
    import_text_libraries()
    tokenizer = load_tokenizer(make_chat_tokenizer("qwen", tmp_path, chat_template=BY_CONTENT))
    assert render_conversation(tokenizer, [{"role": "user", "content": "3"}]) == " 3 "
    with pytest.raises(ProblemError) as refused:
        render_conversation(tokenizer, [{"role": "user", "content": "999999999"}])
    problem = refused.value.problem
    assert (problem.status, problem.param) == (400, "messages")
    assert "chat template" in problem.detail
