"""Train the built-in demo model from scratch. At the root: `python -m notes.demo_model.train OUT`.

First come short exercises in repeating a span, which teach a small model to copy, then conversations; Muon
trains the matrices and AdamW the embeddings; only the model's own words count in the loss.

mlx's CPU wheels on Linux bring a slow reference BLAS. With Debian's libopenblas0-pthread, and

    LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-pthread LD_PRELOAD=libblas.so.3 OPENBLAS_NUM_THREADS=1

before the command, training runs 6 to 7 times as fast. Nothing but the speed depends on it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import attrs
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import qwen3
from tokenizers import Tokenizer

from .conversation import Example
from .corpus import examples, exercises
from .encoding import (
    END_OF_TEXT,
    END_OF_TURN,
    TEMPLATE,
    VOCABULARY,
    Encoder,
    TokenizedExample,
    train_tokenizer,
)
from .fast_cpu import use_fast_cpu_operations
from .spans import Against
from .structured import structured

CONTEXT = 2048
LONGEST_EXAMPLES = {"exercise": 1600, "chat": 1000, "structured": 800}
"""Tokens of the longest conversation of each kind: long ones take much time, and chats teach to bear them."""
POOL = 1024
WARM_UP = 30
KEPT_EVERY = 250
_HALF = ("structured", "chat", "structured", "exercise", "structured")
_OTHER = ("chat", "structured", "exercise", "structured", "chat")
CYCLE = (*_HALF, *_OTHER)
"""The stages of training after the first exercises."""


@attrs.frozen
class Recipe:
    """The numbers of one training run.

    Args:
        exercise_steps: Steps on exercises alone, at the start.
        steps: All steps.
        batch_tokens: Padded tokens in one batch.
        matrix_rate: Peak learning rate of Muon.
        embedding_rate: Peak learning rate of AdamW.
        seed: Start of every random draw.
    """

    exercise_steps: int = 600
    steps: int = 4500
    batch_tokens: int = 2048
    matrix_rate: float = 0.02
    embedding_rate: float = 3e-3
    seed: int = 0


def model_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """The architecture, as config.json holds it."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "intermediate_size": 320,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.token_to_id(END_OF_TURN),
        "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
        "torch_dtype": "bfloat16",
    }


def batches(
    encode: Encoder, source: Iterator[Example], longest: int, budget: int, seed: int
) -> Iterator[list[TokenizedExample]]:
    """An endless stream of batches of conversations of similar length, `budget` padded tokens each."""
    random = Random(seed)
    while True:
        pool = [encode(example) for example in itertools.islice(source, POOL)]
        pool = sorted((one for one in pool if len(one.ids) <= longest), key=lambda one: len(one.ids))
        groups: list[list[TokenizedExample]] = [[]]
        for sequence in pool:
            if groups[-1] and (len(groups[-1]) + 1) * len(sequence.ids) > budget:
                groups.append([])
            groups[-1].append(sequence)
        random.shuffle(groups)
        yield from groups


Batch = tuple[mx.array, mx.array, mx.array, mx.array, mx.array]


def arrays(batch: list[TokenizedExample], forbidden: mx.array) -> Batch:
    """Padded inputs, flat positions before each learned token, those tokens, their weights, and masks.

    Args:
        batch: Conversations.
        forbidden: For each kind of rivals, what is added to the logit of each token of the vocabulary.
    """
    width = max(len(sequence.ids) for sequence in batch) - 1
    inputs = np.zeros((len(batch), width), np.int32)
    learned: list[tuple[int, int, float, int]] = []
    for row, sequence in enumerate(batch):
        inputs[row, : len(sequence.ids) - 1] = sequence.ids[:-1]
        for at in range(1, len(sequence.ids)):
            if sequence.weights[at]:
                place = row * width + at - 1
                learned.append(
                    (
                        place,
                        sequence.ids[at],
                        sequence.weights[at],
                        sequence.against.get(at, Against.ALL).value,
                    )
                )
    positions, targets, weights, against = map(mx.array, map(list, zip(*learned, strict=True)))
    return mx.array(inputs), positions, targets, weights, forbidden[against]


def loss(
    model: Any, inputs: mx.array, positions: mx.array, targets: mx.array, weights: mx.array, masks: mx.array
) -> mx.array:
    """Weighted mean cross-entropy over the learned tokens."""
    hidden = model.model(inputs)
    hidden = hidden.reshape(-1, hidden.shape[-1])[positions]
    logits = model.model.embed_tokens.as_linear(hidden) + masks
    each = nn.losses.cross_entropy(logits, targets, reduction="none")
    mean: mx.array = (each * weights).sum() / weights.sum()
    return mean


def optimizer(recipe: Recipe) -> optim.Optimizer:
    """Muon for the matrices inside the layers, AdamW for the embeddings and norms."""

    warm_up = min(WARM_UP, recipe.steps // 2)

    def schedule(peak: float) -> Any:
        rise = optim.linear_schedule(peak / 100, peak, warm_up)
        fall = optim.cosine_decay(peak, recipe.steps - warm_up, peak * 0.01)
        return optim.join_schedules([rise, fall], [warm_up])

    matrices = optim.Muon(schedule(recipe.matrix_rate), weight_decay=0.0)
    rest = optim.AdamW(schedule(recipe.embedding_rate), betas=[0.9, 0.98], weight_decay=0.0)
    return optim.MultiOptimizer([matrices, rest], [lambda path, w: w.ndim == 2 and "embed" not in path])


def train(model: Any, encode: Encoder, recipe: Recipe, keep: Callable[[], None]) -> list[float]:
    """Runs all steps; gives the loss of each. Now and then what was reached is kept."""
    sources = {
        "exercise": exercises(recipe.seed + 1),
        "chat": examples(recipe.seed + 2),
        "structured": structured(recipe.seed + 3),
    }
    kinds = {
        kind: batches(encode, source, LONGEST_EXAMPLES[kind], recipe.batch_tokens, recipe.seed)
        for kind, source in sources.items()
    }
    steps = optimizer(recipe)
    value_and_gradient = nn.value_and_grad(model, loss)
    forbidden = np.full((len(Against), VOCABULARY), -1e9, np.float32)
    for against in Against:
        forbidden[against.value, encode.rivals(against)] = 0
    losses: list[float] = []
    shown: dict[str, list[float]] = {kind: [] for kind in kinds}
    start = time.monotonic()
    for step in range(recipe.steps):
        kind = "exercise" if step < recipe.exercise_steps else CYCLE[step % len(CYCLE)]
        value, gradient = value_and_gradient(model, *arrays(next(kinds[kind]), mx.array(forbidden)))
        gradient, _ = optim.clip_grad_norm(gradient, 1.0)
        steps.update(model, gradient)
        mx.eval(value, model.state, steps.state)
        losses.append(value.item())
        shown[kind].append(losses[-1])
        if step % KEPT_EVERY == KEPT_EVERY - 1:
            keep()
        if step % 50 == 49:
            recent = " ".join(
                f"{kind} {sum(of[-20:]) / len(of[-20:]):.4f}" for kind, of in shown.items() if of
            )
            print(f"step {step + 1} loss {recent} seconds {time.monotonic() - start:.0f}", flush=True)
    return losses


def save(folder: Path, tokenizer: Tokenizer, model: Any | None = None) -> None:
    """Writes the folder as mlx-lm reads it; without a model, all but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = [tokenizer.token_to_id(END_OF_TURN), tokenizer.token_to_id(END_OF_TEXT)]
    contents: dict[str, dict[str, Any]] = {
        "config.json": model_config(tokenizer),
        "generation_config.json": {"eos_token_id": ends, "temperature": 0.0},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END_OF_TURN,
            "pad_token": END_OF_TEXT,
            "bos_token": None,
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE.read_text(),
        },
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    if model is not None:
        weights = dict(tree_flatten(tree_map(lambda w: w.astype(mx.bfloat16), model.parameters())))
        mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def begin(seed: int, earlier: Path | None) -> tuple[Tokenizer, Any]:
    """A fresh tokenizer and model, or those of an earlier run."""
    tokenizer = Tokenizer.from_file(str(earlier / "tokenizer.json")) if earlier else train_tokenizer(seed)
    model = qwen3.Model(qwen3.ModelArgs.from_dict(model_config(tokenizer)))
    if earlier:
        model.load_weights(str(earlier / "model.safetensors"))
        model.set_dtype(mx.float32)
    else:
        embeddings = model.model.embed_tokens
        embeddings.weight = mx.random.normal(embeddings.weight.shape) * 0.05
    return tokenizer, model


def main() -> None:
    """Trains and writes OUT."""
    standard = Recipe()
    parser = argparse.ArgumentParser(description="Train Greenroom's built-in demo model.")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--steps", type=int, default=standard.steps)
    parser.add_argument("--exercise-steps", type=int, default=standard.exercise_steps)
    parser.add_argument("--rate", type=float, default=1.0, help="factor on both learning rates")
    parser.add_argument("--start-from", type=Path, help="folder of an earlier run to go on from")
    parser.add_argument("--seed", type=int, default=standard.seed)
    arguments = parser.parse_args()
    recipe = Recipe(
        exercise_steps=arguments.exercise_steps,
        steps=arguments.steps,
        matrix_rate=standard.matrix_rate * arguments.rate,
        embedding_rate=standard.embedding_rate * arguments.rate,
        seed=arguments.seed,
    )
    use_fast_cpu_operations()
    mx.random.seed(recipe.seed)
    tokenizer, model = begin(recipe.seed, arguments.start_from)
    start = time.monotonic()
    losses = train(model, Encoder(tokenizer), recipe, lambda: save(arguments.out, tokenizer, model))
    save(arguments.out, tokenizer, model)
    recent = losses[-100:]
    print(f"trained in {time.monotonic() - start:.0f} s; last loss {sum(recent) / len(recent):.4f}")


if __name__ == "__main__":
    main()
