"""Loaded rerankers: cross-encoders, which classify a pair, and generative ones, which answer yes or no."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.catalog.encoder_kinds import label_count
from greenroom.engine.catalog.model_files import read_json_object
from greenroom.engine.encoding.encoder_engine import EncoderEngine, measure_passes
from greenroom.engine.encoding.rerank_adapter import CLASSIFIERS, answer_tokens, reranker_type
from greenroom.engine.encoding.row_queue import PassCost, pass_cost
from greenroom.engine.encoding.rows import PreparedRows, Row, RowModel, Tokens, Values, pad
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import named_load_errors
from greenroom.engine.loading.read_weights import cast_weights, read_weights, recorded_files, weight_bytes
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.tokenizer.reading_in_pieces import read_backend
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.problems import ProblemError, model_broken
from greenroom.schemas.settings.settings import Settings

_MEANS_RELEVANT = re.compile(r"relevant|yes|true|positive|match|entailment", re.IGNORECASE)


class CrossEncoder:
    """A loaded classifier of pairs, confined to its thread.

    Args:
        labels: Number of logits per pair: one, or two for irrelevant and relevant.
        batch_bytes: Memory of a pass in bytes without the weights, by rows and width.
    """

    def __init__(
        self, model: Any, config: Mapping[str, Any], labels: int, batch_bytes: Callable[[int, int], int]
    ) -> None:
        self._model = model
        self._padding = int(config.get("pad_token_id") or 0)
        self._relevant = _relevant_label(config) if labels > 1 else 0
        self._exclusive = labels > 1 and config.get("problem_type") != "multi_label_classification"
        self._batch_bytes = batch_bytes

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs, `[rows, 1]`."""
        ids, mask = pad([row.tokens for row in rows], self._padding)
        types = {}
        if rows[0].second is not None:
            begins = np.array([row.second for row in rows], np.int32)[:, None]
            types["token_type_ids"] = mx.array((np.arange(ids.shape[1]) >= begins).astype(np.int32) * mask)
        output = self._model(mx.array(ids), attention_mask=mx.array(mask), **types)
        logits = output.logits.astype(mx.float32)
        scores = mx.softmax(logits, axis=-1) if self._exclusive else mx.sigmoid(logits)
        relevant = scores[:, self._relevant, None]
        mx.eval(relevant)
        return np.array(relevant)

    def event(self, prepared: PreparedRows, index: int, values: Values) -> Score:
        return score_event(index, values)

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._batch_bytes(rows, width)


def _relevant_label(config: Mapping[str, Any]) -> int:
    """Return the index of the label for relevance: the second, unless the labels' names say otherwise."""
    names = config.get("id2label")
    first, second = (str(names.get(str(n), "")) for n in (0, 1)) if isinstance(names, dict) else ("", "")
    negated = re.compile(r"^(?:not|non|ir|un|in)", re.IGNORECASE)
    first_means = _MEANS_RELEVANT.search(first) is not None and negated.search(first) is None
    second_means = _MEANS_RELEVANT.search(second) is not None and negated.search(second) is None
    return 0 if first_means and not second_means else 1


class GenerativeReranker:
    """A loaded decoder, confined to its thread.

    Rows are padded on the right; causal attention never reaches the padding, so each row is computed as if
    alone.

    Args:
        model: A model of mlx-lm whose layers all use a plain `KVCache`.
        answers: Ids of the tokens `yes` and `no`.
    """

    def __init__(self, model: Any, answers: tuple[int, int], cost: PassCost) -> None:
        self._model = model
        self._answers = answers
        self._cost = cost
        caches = self._new_caches()
        model.model(mx.zeros((1, 1), mx.int32), caches)
        mx.eval([(cache.keys, cache.values) for cache in caches])
        self._prefix_costs = PrefixCosts(caches, cost)

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs, `[rows, 1]`."""
        ids, _ = pad([row.tokens for row in rows], 0)
        last = mx.array(np.array([len(row.tokens) - 1 for row in rows], np.int32))
        return self._answer(self._model.model(mx.array(ids))[mx.arange(len(rows)), last])

    def event(self, prepared: PreparedRows, index: int, values: Values) -> Score:
        return score_event(index, values)

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._cost.batch_bytes(rows, width)

    def prefix_bytes(self, tokens: int) -> int:
        return self._prefix_costs.prefix_bytes(tokens)

    def open_prefix(self, tokens: Tokens) -> PrefixKV:
        return PrefixKV(tokens, self._model.model, self._new_caches(), self._prefix_costs, self._answer)

    def _new_caches(self) -> list[Any]:
        from mlx_lm.models.cache import KVCache

        return [KVCache() for _ in self._model.layers]

    def _answer(self, hidden: mx.array) -> Values:
        head = getattr(self._model, "lm_head", None)
        logits = self._model.model.embed_tokens.as_linear(hidden) if head is None else head(hidden)
        yes, no = self._answers
        scores = mx.sigmoid((logits[:, yes] - logits[:, no]).astype(mx.float32))[:, None]
        mx.eval(scores)
        return np.array(scores)


def load_reranker(
    folder: Path,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    reserve_memory: Callable[[int], None],
) -> RowModel:
    """Return a model with all its weights in memory, after one trial pass.

    Args:
        settings: Settings, of which `device`, `dtype` and `trust_remote_code` apply.
        progress: Callback with the fraction of the weights in memory, 0 to 1.
        reserve_memory: Callback with the weights' bytes, before they are read; may raise ProblemError.

    Raises:
        ProblemError: 503 `load_failed`: files are missing, broken, or do not fit the architecture.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    use_device(settings)
    with named_load_errors(folder):
        check_weight_files(folder)
        config = read_json_object(folder / "config.json")
        cross = reranker_type(config) == "cross_encoder"
        with recorded_files(is_abandoned) as files:
            network = _classifier(folder, config) if cross else _decoder(folder, settings)
        mx.eval(mx.random.state)  # Otherwise its graph keeps the layers' initial random weights alive.
        cast_weights(network, settings)
        reserve_memory(weight_bytes(network))
        read_weights(network, files, progress, is_abandoned)
        network.eval()
        model = _wrap(network, folder, config, cross)
        model.compute([Row(np.zeros(1, np.int32), second=1 if cross else None)])
        return model


def _classifier(folder: Path, config: dict[str, Any]) -> Any:
    from mlx_vlm.encoder_loader import load_encoder_model

    activation = str(config.get("hidden_act", "gelu"))
    if activation != "gelu":
        raise ValueError(
            f"its activation '{activation}' is not known to mlx-vlm's encoders, which have 'gelu'"
        )
    return load_encoder_model(
        folder,
        model_remapping=dict(CLASSIFIERS),
        model_class_name="SequenceClassificationModel",
        config=config,
        config_overrides={"num_labels": label_count(config)},
        lazy=True,
    )


def _decoder(folder: Path, settings: Settings) -> Any:
    from mlx_lm.utils import load_model

    model, _ = load_model(folder, lazy=True, trust_remote_code=settings.trust_remote_code)
    return model


def _wrap(network: Any, folder: Path, config: dict[str, Any], cross: bool) -> RowModel:
    cost = pass_cost(config, network)
    if cross:
        return CrossEncoder(network, config, label_count(config), cost.batch_bytes)
    vocabulary = read_backend(str(folder / "tokenizer.json"))
    known = {word: vocabulary.token_to_id(word) for word in ("yes", "no")}
    found = {word: ident for word, ident in known.items() if ident is not None}
    return GenerativeReranker(network, answer_tokens(folder, found), cost)


def open_rerank_engine(load: ModelLoad) -> EncoderEngine:
    """Load a model's weights, confined to this thread. Raises ProblemError (503 `load_failed`); 507: there is
    not enough memory for the weights. Raises LoadAbandonedError: the load was abandoned.
    """
    with load.open_share() as (share, charge):
        model = load_reranker(load.folder, load.settings, load.progress, load.is_abandoned, charge)
        budget = measure_passes(model, load.clock, pairs=isinstance(model, CrossEncoder))
        return EncoderEngine(model, share, budget, load.clock)


_COPIES = 2
"""Number of copies of a layer's keys and values that exist at once while rows attend to the prefix."""


class PrefixCosts:
    """Memory model of shared prefixes, measured on a decoder's first token."""

    def __init__(self, caches: Sequence[Any], cost: PassCost) -> None:
        self._step: int = caches[0].keys.shape[2]
        sizes: list[int] = [(cache.keys.nbytes + cache.values.nbytes) // self._step for cache in caches]
        self._cost = cost
        self._of_token = sum(sizes)
        self._of_layer = max(sizes)

    def prefix_bytes(self, tokens: int) -> int:
        """Return the bytes of a prefix's KV cache, which grows in steps."""
        return -(-tokens // self._step) * self._step * self._of_token

    def pass_bytes(self, rows: int, width: int, before: int) -> int:
        seen = rows * (before + width) * self._of_layer * _COPIES
        return self._cost.batch_bytes(rows, width, before) + seen


class PrefixKV:
    """The computed prefix that pairs of query and document share; implements
    `greenroom.engine.encoding.encoder_engine.SharedPrefix`.

    Args:
        tokens: Token ids of the prefix.
        decoder: The decoder without its LM head, called as `decoder(ids, cache)`.
        caches: One empty cache per layer.
        answer: Function from hidden states at the last tokens to scores.
    """

    def __init__(
        self,
        tokens: Tokens,
        decoder: Any,
        caches: Sequence[Any],
        costs: PrefixCosts,
        answer: Callable[[mx.array], Values],
    ) -> None:
        self._tokens = tokens
        self._decoder = decoder
        self._caches = caches
        self._costs = costs
        self._answer = answer
        self._done = 0

    @property
    def left(self) -> int:
        return len(self._tokens) - self._done

    def advance(self, count: int) -> None:
        ids = mx.array(self._tokens[None, self._done : self._done + count])
        self._decoder(ids, self._caches)
        mx.eval([(cache.keys, cache.values) for cache in self._caches])
        self._done += count

    def advance_bytes(self, count: int) -> int:
        """Return the memory that `advance` takes in bytes, including the copies while a cache grows."""
        grown = self._costs.prefix_bytes(self._done + count) if self._done else 0
        return grown + self._costs.pass_bytes(1, count, self._done)

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs with this prefix, `[rows, 1]`."""
        own = [row.tokens[self._done :] for row in rows]
        ids, _ = pad(own, 0)
        hidden = self._decoder(mx.array(ids), [_CachedPrefix(cache) for cache in self._caches])
        last = mx.array(np.array([len(tokens) - 1 for tokens in own], np.int32))
        return self._answer(hidden[mx.arange(len(own)), last])

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._costs.pass_bytes(rows, width, self._done)


class _CachedPrefix:
    """One layer's cached prefix, shared by all rows of a pass; the rows' own keys and values are not kept.
    `cache`: A `KVCache` of mlx-lm.
    """

    def __init__(self, cache: Any) -> None:
        self.offset: int = cache.offset
        self._keys, self._values = cache.keys_and_values()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return _behind(self._keys, keys), _behind(self._values, values)

    def make_mask(self, length: int, window_size: int | None = None, return_array: bool = False) -> Any:
        from mlx_lm.models.cache import create_attention_mask

        return create_attention_mask(
            length, offset=self.offset, return_array=return_array, window_size=window_size
        )


def _behind(prefix: mx.array, rows: mx.array) -> mx.array:
    return mx.concatenate([mx.broadcast_to(prefix, (rows.shape[0], *prefix.shape[1:])), rows], axis=2)


def score_event(index: int, values: Values) -> Score:
    """Return the score of a pair. Raises ProblemError (503 `model_broken`): the model computed NaN or
    infinity.
    """
    value = float(values[0])
    if not math.isfinite(value):
        raise ProblemError(model_broken(f"document {index}"))
    return Score(value, index)
