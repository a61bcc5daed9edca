"""Constrained answers over HTTP, from models whose random weights would never produce them freely."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anthropic
import openai
import pydantic
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask_together
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.grammars.constrained_chats import (
    MESSAGES,
    NAMED,
    PERSON,
    PLAIN,
    SCHEMAS,
    TOOLS,
    WITHOUT_REASONING,
    chat,
    formatted,
    tool,
)
from greenroom.tests.support.grammars.grammar_walks import validate
from greenroom.tests.support.servers.shared_servers import Shared


class City(pydantic.BaseModel):
    """A city or a village."""

    kind: Literal["city", "village"]
    inhabitants: int = pydantic.Field(ge=0, le=10**9)
    coastal: bool


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=tuple(str(tiny_model(kind)) for kind in ("qwen3", "llama")), shutdown_timeout=60.0)


@pytest.mark.deep
async def test_every_bounded_schema_ends_with_stop_and_validates(settings: Settings, shared: Shared) -> None:
    schemas = [schema for schema in SCHEMAS for _ in range(3)]
    served = shared(settings)
    calls = [chat(response_format=formatted(schema), temperature=1) for schema in schemas]
    answers = await ask_together(served, *calls)
    for schema, answer in zip(schemas, answers, strict=True):
        [choice] = answer.choices
        assert choice.finish_reason == "stop", choice
        validate(schema, choice.message.content)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0},
        {"extra_body": {"top_k": 3, "min_p": 0.2}},
        *deep_only({"temperature": 2}, {"top_p": 0.1}),
    ],
)
async def test_every_way_of_sampling_keeps_to_the_schema(
    settings: Settings, shared: Shared, sampling: Any
) -> None:
    served = shared(settings)
    calls = [chat(response_format=formatted(PERSON), **sampling)] * 2
    for answer in await ask_together(served, *calls):
        assert answer.choices[0].finish_reason == "stop"
        validate(PERSON, answer.choices[0].message.content)


async def test_what_is_cut_ends_with_length_and_begins_something_valid(
    settings: Settings,
    shared: Shared,
) -> None:
    long = {"const": {"text": "a constant that takes more tokens than there is room for"}}
    served = shared(settings)
    [answer] = await ask_together(served, chat(response_format=formatted(long), max_tokens=12))
    [choice] = answer.choices
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    written = choice.message.content
    assert len(written) > 8
    assert re.sub(r"(?<![a-z])\s", "", json.dumps(long["const"])).startswith(
        re.sub(r"(?<![a-z])\s", "", written)
    )


async def test_json_object_is_an_object_or_length(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    # Of these seeds, two end with the object.
    calls = [chat(response_format={"type": "json_object"}, max_tokens=60, seed=seed) for seed in (0, 1, 2, 8)]
    answers = [answer.choices[0] for answer in await ask_together(served, *calls)]
    for choice in answers:
        assert choice.message.content.lstrip()[0] == "{"
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
    assert any(choice.finish_reason == "stop" for choice in answers)


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    indoors: bool


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    walks: int = pydantic.Field(ge=0, le=9)


class Pet(pydantic.BaseModel):
    """A pet, by pydantic's discriminated union: `oneOf` of `$ref`."""

    animal: Cat | Dog = pydantic.Field(discriminator="kind")


class Pets(pydantic.BaseModel):
    """Optional tasks, as instructor's iterables ask for them; other keys are not named."""

    tasks: list[Cat | Dog] | None = pydantic.Field(default=None, max_length=2)


@pytest.mark.deep
async def test_unions_of_pydantic_are_held_in_every_protocol(settings: Settings, shared: Shared) -> None:
    schema = Pets.model_json_schema()

    def parse(client: openai.OpenAI) -> Any:
        parsed = client.chat.completions.parse(response_format=Pet, **WITHOUT_REASONING)
        return parsed.choices[0].message.parsed

    def respond(client: openai.OpenAI) -> Any:
        reasoning: Any = {"effort": "none"}
        model = WITHOUT_REASONING["model"]
        return client.responses.parse(
            model=model, input="A pet?", text_format=Pet, reasoning=reasoning
        ).output_parsed

    def instruct(client: openai.OpenAI) -> Any:
        tools = [tool("Pets", parameters=schema)]
        choice: Any = {"type": "function", "function": {"name": "Pets"}}
        answer = client.chat.completions.create(**WITHOUT_REASONING, tools=tools, tool_choice=choice)
        [call] = answer.choices[0].message.tool_calls
        return call.function.arguments

    def message(client: openai.OpenAI) -> Any:
        made = anthropic.Anthropic(base_url=str(client.base_url).removesuffix("/v1/"), api_key="x").messages
        answer = made.create(
            model=WITHOUT_REASONING["model"],
            max_tokens=400,
            messages=[{"role": "user", "content": "A pet?"}],
            tools=[{"name": "Pets", "input_schema": schema}],
            tool_choice={"type": "any"},
        )
        [call] = [block for block in answer.content if block.type == "tool_use"]
        return json.dumps(call.input)

    served = shared(settings)
    answers = await ask_together(served, *[parse, respond, instruct, message] * 4)
    for index, answer in enumerate(answers):
        if index % 4 < 2:
            assert isinstance(answer, Pet)
        else:
            assert json.loads(answer).keys() <= {"tasks"}
            Pets.model_validate_json(answer)


async def test_a_tool_that_is_not_strict_is_told_what_is_not_held(settings: Settings, shared: Shared) -> None:
    parameters = {"type": "object", "properties": {"kind": {"enum": ["red"]}, "n": {"not": {"const": 1}}}}
    tools = [tool("paint", parameters=parameters | {"required": ["kind"]})]

    def ask(client: openai.OpenAI) -> Any:
        made = client.chat.completions.with_raw_response
        return made.create(**WITHOUT_REASONING, tools=tools, tool_choice="required")

    served = shared(settings)
    [answer] = await ask_together(served, ask)
    assert answer.headers["x-greenroom-notice"].endswith("tools[0].function.parameters.properties.n.not")
    [call] = answer.parse().choices[0].message.tool_calls
    assert '"red"' in call.function.arguments


async def test_a_prediction_counts_as_rejected_tokens(settings: Settings, shared: Shared) -> None:
    def ask(prediction: Any) -> Callable[[openai.OpenAI], Any]:
        return lambda client: client.chat.completions.create(
            **{**PLAIN, "max_tokens": 4}, prediction=prediction
        )

    def refused(client: openai.OpenAI) -> Any:
        with pytest.raises(openai.BadRequestError, match="prediction"):
            ask({"type": "other", "content": "x"})(client)

    text = {"type": "text", "text": "a text that the client expects"}
    served = shared(settings)
    wanted = [ask({"type": "content", "content": content}) for content in (text["text"], [text], "")]
    answers = await ask_together(served, *wanted, refused)
    counts = [answer.usage.completion_tokens_details.rejected_prediction_tokens for answer in answers[:3]]
    assert counts[0] == counts[1] > counts[2] == 0


async def test_openais_helpers_parse_what_comes_whole_or_streamed(settings: Settings, shared: Shared) -> None:
    def parse(client: openai.OpenAI) -> Any:
        return client.chat.completions.parse(response_format=City, **WITHOUT_REASONING)

    def stream(client: openai.OpenAI) -> Any:
        with client.chat.completions.stream(response_format=City, **WITHOUT_REASONING) as events:
            for _ in events:
                pass
            return events.get_final_completion()

    def pieces(client: openai.OpenAI) -> Any:
        body = {**WITHOUT_REASONING, "response_format": formatted(PERSON)}
        return [chunk.choices[0] for chunk in client.chat.completions.create(stream=True, **body)]

    served = shared(settings)
    whole, streamed, chunks = await ask_together(served, parse, stream, pieces)
    for completion in (whole, streamed):
        assert isinstance(completion.choices[0].message.parsed, City)
    validate(PERSON, "".join(chunk.delta.content or "" for chunk in chunks))
    assert chunks[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    ("extension", "pattern"),
    [
        ({"guided_regex": "(a|b){3}[0-9]"}, "(a|b){3}[0-9]"),
        ({"guided_choice": [" yes", "no\n"]}, "( yes|no\n)"),
        ({"guided_grammar": 'start: "<" WORD ">"\nWORD: /[a-z]{1,5}/'}, "<[a-z]{1,5}>"),
        ({"guided_json": {"enum": [1, "x"]}}, r'\s*(1|"x")'),
        ({"guided_json": '{"enum": [1, "x"]}'}, r'\s*(1|"x")'),
        ({"json_schema": {"enum": [1, "x"]}}, r'\s*(1|"x")'),
        ({"structured_outputs": {"choice": ["Rome", "Ostia"]}}, "Rome|Ostia"),
        ({"response_format": {"type": "json_object", "schema": {"enum": [7]}}}, r"\s*7"),
    ],
)
async def test_extensions_constrain_chats_and_raw_completions(
    settings: Settings, shared: Shared, extension: Any, pattern: str
) -> None:
    def raw(client: openai.OpenAI) -> Any:
        return client.completions.create(model="llama", prompt="So:", max_tokens=60, extra_body=extension)

    served = shared(settings)
    chatted, completed = await ask_together(served, chat(extra_body=extension), raw)
    assert re.fullmatch(pattern, chatted.choices[0].message.content)
    assert re.fullmatch(pattern, completed.choices[0].text)
    assert chatted.choices[0].finish_reason == completed.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "limits", [{"stop": ["a", "{", '"', "e"]}, {"extra_body": {"stop_token_ids": list(range(7, 250))}}]
)
async def test_nothing_that_a_client_calls_an_end_cuts_a_constrained_answer(
    settings: Settings, shared: Shared, limits: Any
) -> None:
    served = shared(settings)
    for answer in await ask_together(served, *[chat(response_format=formatted(PERSON), **limits)] * 2):
        validate(PERSON, answer.choices[0].message.content)


async def test_a_thought_is_free_within_its_budget_and_the_answer_is_constrained(
    settings: Settings, shared: Shared
) -> None:
    continued = {"messages": [*MESSAGES, {"role": "assistant", "content": "<think>\nHm"}]}
    # Greedy, so that no model closes its thought by chance before the budget ends.
    options = {"continue_final_message": True, "reasoning_effort": "high", "temperature": 0}

    def thinking(budget: dict[str, Any], **fields: Any) -> Callable[[openai.OpenAI], Any]:
        return chat(**continued, extra_body={**options, **budget}, **fields)

    forced = {"tools": TOOLS, "tool_choice": NAMED, "max_tokens": 1_500}
    served = shared(settings)
    budgets: list[dict[str, Any]] = [
        {"thinking_budget": 20},
        {"thinking": {"type": "enabled", "budget_tokens": 20}},
    ]
    constrained = [thinking(budget, response_format=formatted(PERSON)) for budget in budgets]
    called = thinking({"reasoning_max_tokens": 20}, **forced)
    endless = thinking({}, response_format=formatted(PERSON), max_tokens=50)
    *answers, calling, thought = await ask_together(served, *constrained, called, endless)
    for answer in answers:
        [choice] = answer.choices
        assert choice.finish_reason == "stop"
        validate(PERSON, choice.message.content)
    for answer in (*answers, calling):
        assert answer.choices[0].message.reasoning_content
        assert 20 <= answer.usage.completion_tokens_details.reasoning_tokens <= 26
    assert calling.choices[0].finish_reason == "tool_calls"
    validate(PERSON, calling.choices[0].message.tool_calls[0].function.arguments)
    assert thought.choices[0].finish_reason == "length"
    assert thought.usage.completion_tokens_details.reasoning_tokens == 50
    assert not thought.choices[0].message.content


async def test_an_answer_that_has_begun_cannot_be_constrained(settings: Settings, shared: Shared) -> None:
    continued = {"messages": [*MESSAGES, {"role": "assistant", "content": "It"}]}

    def refused(client: openai.OpenAI) -> Any:
        fields = {"response_format": formatted(PERSON), "extra_body": {"continue_final_message": True}}
        with pytest.raises(openai.BadRequestError) as error:
            client.chat.completions.create(**{**PLAIN, **continued, **fields})
        return error.value

    served = shared(settings)
    [error] = await ask_together(served, refused)
    assert error.param == "continue_final_message"


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"response_format": formatted({"properties": {"a": {"uniqueItems": True}}})},
        "response_format.json_schema.schema.properties.a.uniqueItems",
    ),
    ({"response_format": formatted(3)}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.schema",
    ),
    ({"response_format": "json"}, "response_format"),
    ({"guided_json": {"not": {"type": "string"}}}, "guided_json.not"),
    ({"guided_json": {"not": {}}}, "guided_json"),
    ({"guided_grammar": 'start: %json {"not": {}}'}, "guided_grammar"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_regex": "(a"}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["a", 1]}, "guided_choice[1]"),
    ({"guided_grammar": "start: nowhere"}, "guided_grammar"),
    ({"grammar": 'root ::= "a"{5,5}'}, "grammar"),
    ({"json_schema": 3}, "json_schema"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": NAMED, "tools": [TOOLS[1]]}, "tool_choice"),
    ({"tool_choice": "perhaps", "tools": TOOLS}, "tool_choice"),
    ({"tool_choice": {"type": "custom"}, "tools": TOOLS}, "tool_choice.custom.name"),
    (
        {"tools": [tool("f", strict=True, parameters={"not": {"required": ["x"]}})]},
        "tools[0].function.parameters.not",
    ),
    ({"thinking_budget": -1}, "thinking_budget"),
    ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_constrained_is_refused_with_its_path(
    settings: Settings, shared: Shared, stream: bool
) -> None:
    def refused(client: openai.OpenAI) -> list[str | None]:
        params = []
        for fields, _ in REFUSED:
            with pytest.raises(openai.BadRequestError) as error:
                client.chat.completions.create(**PLAIN, stream=stream, extra_body=fields)
            params.append(error.value.param)
        return params

    served = shared(settings)
    [params] = await ask_together(served, refused)
    assert params == [param for _, param in REFUSED]
