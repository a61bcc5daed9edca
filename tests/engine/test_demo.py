"""The shipped demo model behaves as its card says, and is made as its card says."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.notes.demo_model.conversation import Example
from greenroom.notes.demo_model.corpus import examples, exercises
from greenroom.notes.demo_model.encoding import Encoder, chat_template, render
from greenroom.notes.demo_model.fast_cpu import BLOCK, attention
from greenroom.notes.demo_model.prompts import PROMPTS, DemoPrompt, markdown_table
from greenroom.notes.demo_model.spans import FORCED, LEARNED, Against
from greenroom.notes.demo_model.structured import structured
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.texts.demo_held_out import HELD_OUT

FOLDER = Path(__file__).resolve().parents[2] / "engine" / "demo" / "model"
CARD = (FOLDER / "README.md").read_text()

Answer = Callable[[DemoPrompt], str]


@pytest.fixture(scope="module")
def answer() -> Answer:
    """Answer a prompt with the shipped weights through plain mlx-lm, greedily."""
    from mlx_lm import load, stream_generate

    model, tokenizer = load(str(FOLDER))

    def ask(prompt: DemoPrompt) -> str:
        tokens = tokenizer.apply_chat_template(
            list(prompt.messages),
            tools=list(prompt.tools) or None,
            add_generation_prompt=True,
            enable_thinking=prompt.thinking,
        )
        return "".join(piece.text for piece in stream_generate(model, tokenizer, tokens, max_tokens=400))

    return ask


@pytest.mark.parametrize(
    "prompt",
    [*PROMPTS[::2], *deep_only(*PROMPTS[1::2])],
    ids=lambda prompt: prompt.messages[-1]["content"][:40],
)
def test_a_documented_prompt_gets_the_documented_answer(answer: Answer, prompt: DemoPrompt) -> None:
    assert answer(prompt) == prompt.expected


@pytest.mark.soak
@pytest.mark.parametrize("kind", HELD_OUT)
def test_the_card_states_how_often_unseen_prompts_are_answered_right(answer: Answer, kind: str) -> None:
    row = re.search(rf"^\| {re.escape(kind)} \| (\d+) of (\d+) \|$", CARD, re.MULTILINE)
    assert row is not None
    stated, asked = int(row[1]), int(row[2])

    right = sum(answer(prompt) == prompt.expected for prompt in HELD_OUT[kind])

    assert asked == len(HELD_OUT[kind])
    # bfloat16 rounds differently on other processors, which may tip a close call either way.
    assert abs(right - stated) <= max(1, asked // 20)


def test_the_card_lists_the_documented_prompts() -> None:
    assert markdown_table() in CARD


def test_the_folder_holds_a_small_qwen3_model_that_is_greedy_by_default() -> None:
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert sum(files.values()) < 3_000_000
    assert json.loads((FOLDER / "config.json").read_text())["model_type"] == "qwen3"
    assert json.loads((FOLDER / "generation_config.json").read_text())["temperature"] == 0.0


def test_the_shipped_template_is_the_one_that_training_used() -> None:
    from mlx_lm.utils import load_tokenizer

    tokenizer = load_tokenizer(FOLDER)
    for prompt in PROMPTS:
        example = Example(list(prompt.messages), list(prompt.tools) or None, prompt.thinking, "")
        shipped = tokenizer.apply_chat_template(
            example.messages,
            tools=example.tools,
            enable_thinking=example.thinking,
            add_generation_prompt=True,
            tokenize=False,
        )
        assert shipped == render(chat_template(), example)


def test_mlx_lm_sees_thoughts_and_tool_calls_in_the_template() -> None:
    from mlx_lm.utils import load_tokenizer

    tokenizer = load_tokenizer(FOLDER)
    assert tokenizer.has_thinking
    assert tokenizer.has_tool_calling


def test_the_corpus_is_the_one_of_the_card() -> None:
    digest = hashlib.sha256()
    for source in (examples(2), exercises(1), structured(3)):
        for example in itertools.islice(source, 1000):
            digest.update(repr(example).encode())
    assert digest.hexdigest()[:16] in CARD


def test_training_learns_the_models_own_words_and_nothing_else() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    encode = Encoder(tokenizer)
    for example in itertools.islice(examples(7), 300):
        sequence = encode(example)
        learned = [token for token, learn in zip(sequence.ids, sequence.weights, strict=True) if learn]
        spoken = [message["content"] for message in example.messages if message["role"] == "assistant"]
        text = tokenizer.decode(learned, skip_special_tokens=False)
        assert text.endswith(example.target + "<|im_end|>")
        for content, exemplary in zip(spoken, example.exemplary, strict=True):
            assert not exemplary or content in text


def test_what_a_grammar_forces_is_given_but_hardly_learned() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    encode = Encoder(tokenizer)
    rivals = {against: set(encode.rivals(against)) for against in Against}
    forced = 0
    for example in itertools.islice(structured(7), 300):
        sequence = encode(example)
        text = tokenizer.decode(sequence.ids, skip_special_tokens=False)
        assert text.endswith(example.target + "<|im_end|>")
        assert all(sequence.ids[at] in rivals[against] for at, against in sequence.against.items())
        forced += sum(len(span.text) for span in example.spans if span.weight == FORCED)
        assert sequence.weights[-1] == LEARNED
    assert forced > 300


@pytest.mark.parametrize("length", [1, BLOCK - 1, 2 * BLOCK + 3])
def test_attention_and_its_gradient_are_those_of_mlx(length: int) -> None:
    mx.random.seed(length)
    q, k, v = (mx.random.normal((2, heads, length, 8)) for heads in (4, 2, 2))
    direction = mx.random.normal(q.shape)

    def ours(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        return (attention(q, k, v, scale=0.3) * direction).sum()

    def theirs(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        return (mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask="causal") * direction).sum()

    assert mx.allclose(ours(q, k, v), theirs(q, k, v), rtol=1e-4, atol=1e-3)
    found, right = (mx.grad(of, argnums=(0, 1, 2))(q, k, v) for of in (ours, theirs))
    for mine, expected in zip(found, right, strict=True):
        assert mx.allclose(mine, expected, rtol=1e-3, atol=1e-4)
