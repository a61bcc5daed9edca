"""Text engines over tiny models, stepped on the test's own thread, and mlx-lm's own answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.quantization import quantize_kv
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.lora.files import AdapterFiles
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.text.explanation import PromptHistory
from greenroom.engine.text.prefix_cache import kv_tensors
from greenroom.engine.text.prefix_cache.memory_tier import pack
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.running_batches import BatchPolicy
from greenroom.engine.text.sequence_outputs import Detokenizer, Processor
from greenroom.engine.text.speculation import Speculation
from greenroom.engine.text.text_engine import TextEngine, open_text_engine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.events.events import Finished, InferenceEvent, TextDelta, Token
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import AppliedAdapter, InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.embedded_prompts import EmbeddedPrompts
from greenroom.tests.support.engines.fixed_costs import CountedClock, FixedCosts
from greenroom.tests.support.engines.stepped_engines import SteppedEngine

GREEDY = GenerationParameters(temperature=0.0)


@cache
def loaded(folder: Path) -> tuple[Any, Adapter]:
    """Return the model and its adapter, shared by all tests."""
    adapter = make_adapter(detect(folder), load_tokenizer(folder), Settings())
    return load_model(folder, Settings()), adapter


def opened(folder: Path, settings: Settings) -> TextEngine:
    """Return an engine opened as in a server, with a model of its own."""
    adapter = make_adapter(detect(folder), load_tokenizer(folder), settings)
    return open_text_engine(ModelLoad(folder, detect(folder), settings), adapter)


@cache
def quantized(folder: Path, kv_bits: int | None) -> Any:
    """Return the model with KV caches of `kv_bits` bits."""
    return quantize_kv(loaded(folder)[0], kv_bits)


def prefilled_cache(folder: Path, prompt: Sequence[int]) -> Cache:
    """Return the model's own plain cache, prefilled with a prompt."""
    model, _ = loaded(folder)
    plain = caches.new_cache(model)
    mx.eval(model(mx.array([list(prompt)]), cache=plain))
    return plain


@cache
def expected(folder: Path, prompt: tuple[int, ...], count: int, kv_bits: int | None = None) -> list[int]:
    """Return the greedy continuation by `mlx_lm.stream_generate`.

    Args:
        kv_bits: Bits of mlx-lm's own quantised caches, used from the first token on.
    """
    from mlx_lm import stream_generate
    from mlx_lm.models.cache import KVCache, QuantizedKVCache, make_prompt_cache

    model, adapter = loaded(folder)
    cache = make_prompt_cache(model)
    if kv_bits is not None:
        cache = [QuantizedKVCache(32, kv_bits) if type(layer) is KVCache else layer for layer in cache]
    wrapped = adapter.tokenizer.wrapped
    answers = stream_generate(model, wrapped, list(prompt), max_tokens=count, prompt_cache=cache)
    return [answer.token for answer in answers]


def check_cached(folder: Path, prefix_cache: PrefixCache | None, tokens: Sequence[int]) -> None:
    """Check what is cached of a sequence against what the model computes of it."""
    assert prefix_cache is not None
    match = prefix_cache.memory.match(PrefixKey(), pack(tokens))
    assert match.length >= len(tokens) - 1
    computed = kv_tensors.copy_kv(prefilled_cache(folder, tokens), None, 0, match.length, len(tokens))
    found: list[tuple[Any, ...]] = [*zip(*(node.kv for node in match.path), strict=True)]
    for wanted, parts in zip(kv_tensors.arrays_of(computed), found, strict=True):
        assert wanted is not None
        whole = mx.concatenate([*parts], axis=2)[:, :, : match.length]
        assert mx.allclose(whole, wanted, atol=1e-3).item()


@attrs.define
class RecordingDetokenizer:
    """A detokenizer that also records the tokens, since the engine itself returns only text."""

    inner: Detokenizer
    tokens: list[int]

    @property
    def last_segment(self) -> str:
        return self.inner.last_segment

    def add_token(self, token: int) -> None:
        self.tokens.append(token)
        self.inner.add_token(token)

    def finalize(self) -> None:
        self.inner.finalize()


@attrs.define(eq=False)
class RecordingOutputProcessor:
    """An adapter whose detokenizers record the tokens of each request."""

    adapter: Adapter
    tokens: list[list[int]] = attrs.field(factory=list)

    def new_detokenizer(self, prepared: PreparedPrompt) -> Detokenizer:
        self.tokens.append([])
        return RecordingDetokenizer(self.adapter.new_detokenizer(prepared), self.tokens[-1])

    def new_stream_processor(
        self, prepared: PreparedPrompt, new_call_id: Callable[[], str], index: int = 0
    ) -> Processor:
        return self.adapter.new_stream_processor(prepared, new_call_id, index)

    def token(self, ident: int) -> Token:
        return self.adapter.token(ident)


class QuantizedCacheModel:
    """A model whose caches cannot be batched: mlx-lm's quantised ones have no `merge`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.layers = model.layers

    def make_cache(self) -> list[Any]:
        from mlx_lm.models.cache import QuantizedKVCache

        return [QuantizedKVCache(group_size=32, bits=8) for _ in self.layers]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._model(*arguments, **options)


class Driver(SteppedEngine):
    """An engine, with the tokens and events of each request in order of submission.

    Its schedule depends only on the submitted requests, since costs are fixed.

    Args:
        model: Model that no other test shares; None for the shared one.
    """

    def __init__(
        self,
        folder: Path,
        prefill_policy: PrefillPolicy | None = None,
        prefix_cache: PrefixCache | None = None,
        batch_policy: BatchPolicy | None = None,
        kv_bits: int | None = None,
        speculation: Speculation | None = None,
        account: MemoryAccount | None = None,
        max_rows: int = sys.maxsize,
        model: Any = None,
    ) -> None:
        _, adapter = loaded(folder)
        model = quantized(folder, kv_bits) if model is None else model
        self.kv_bits, self.model = kv_bits, model
        self.output_processor = RecordingOutputProcessor(adapter)
        share = Share(account) if account else None
        self.embedded = EmbeddedPrompts()
        self.clock = CountedClock()
        self.engine: TextEngine = TextEngine(
            model,
            self.output_processor,
            prefill_policy,
            batch_policy,
            prefix_cache,
            speculation=speculation,
            share=share,
            max_rows=max_rows,
            features=self.embedded,
            costs=FixedCosts(),
            clock=self.clock,
            history=PromptHistory(),
            adapter_bytes=Settings().adapter_bytes,
        )
        self.adapter_files = AdapterFiles(Settings().adapter_bytes)
        self.events: dict[str, list[InferenceEvent]] = {}

    def restart(self) -> None:
        """Clear the recorded tokens and events; the engine keeps its prefix cache."""
        self.output_processor.tokens.clear()
        self.events.clear()

    @property
    def tokens(self) -> list[list[int]]:
        return self.output_processor.tokens

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        parameters: GenerationParameters = GREEDY,
        embeddings: Any = None,
        client: str = "",
        applied: AppliedAdapter | None = None,
        **prepared: Any,
    ) -> str:
        """Submit a raw prompt with further fields of its PreparedPrompt; return the request's id."""
        request_id = str(len(self.events))
        self.events[request_id] = []
        raw = RawInput(tuple(prompt))
        request = InferenceRequest(request_id, ModelKey("tiny"), raw, client=client, applied=applied)
        fields: dict[str, Any] = {
            "stop_token_ids": frozenset(parameters.stop_token_ids),
            "parse": False,
            **prepared,
        }
        if applied is not None:
            fields["adapter"] = self.adapter_files.open(applied)
        ready = PreparedPrompt(tuple(prompt), max_tokens=max_tokens, parameters=parameters, **fields)
        self.embedded.embeddings = embeddings
        self.engine.submit(request, ready)
        return request_id


def text_of(events: Sequence[InferenceEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def finished(events: Sequence[InferenceEvent]) -> Finished:
    (last,) = [event for event in events if isinstance(event, Finished)]
    assert events[-1] is last
    return last
