"""Architectures of mlx-lm that compute padded batches wrong, and the patch for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import mlx.core as mx
import mlx.nn as nn

from greenroom.engine.kv_cache.caches import KnownLengths
from greenroom.engine.loading.batching_table import digest_of_module


class ConvolvedKeys(nn.Module):  # type: ignore[misc]
    """Baichuan M1's attention, which keeps the padded input's last key and value for every row."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        attended: mx.array
        if cache is None or cache[0].lengths is None:
            attended = self.attention(x, mask, cache)
            return attended
        states = cache[0]
        before, lengths = list(states.cache), states.lengths
        attended = self.attention(x, mask, cache)
        for index, last in enumerate(self._project(_token_before(x, lengths))):
            old = mx.zeros_like(last) if before[index] is None else before[index]
            states[index] = mx.where((lengths > 0)[:, None, None, None], last, old)
        states.advance(x.shape[1])
        return attended

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return key and value of one token of each row, `[rows, heads, 1, width]`."""
        attention = self.attention
        width = attention.num_kv_heads * attention.head_dim
        hidden = x.shape[-1]
        _, keys, values = mx.split(attention.W_pack(x), (hidden, hidden + width), axis=-1)
        shape = (len(x), attention.num_kv_heads, 1, attention.head_dim)
        return keys.reshape(shape), values.reshape(shape)


def _token_before(x: mx.array, lengths: mx.array) -> mx.array:
    """Return the last token of each row, `[rows, 1, …]`."""
    last = mx.clip(lengths - 1, 0, x.shape[1] - 1)
    return mx.take_along_axis(x, last[:, None, None], axis=1)


class GroupedHeadsMask(nn.Module):  # type: ignore[misc]
    """Gemma 2's attention, which splits heads into groups but not the mask of a batch.

    A mask `[rows, 1, tokens, cached]` met scores `[rows, groups, heads, tokens, cached]`: an error, or, with
    as many rows as groups, each row under another one's mask.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def __call__(self, x: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
        if mask is not None and mask.ndim == 4 and self.attention.repeats > 1:
            mask = mask[:, :, None]
        attended: mx.array = self.attention(x, mask, cache)
        return attended


class NgramContext(nn.Module):  # type: ignore[misc]
    """LongCat's n-gram embeddings, mended: their own context holds padding, and too few tokens of short rows.

    Before a row's first token they read token 0. So a context that is padded on the left with token 0 gives
    the same result and has the same width in every row.
    """

    def __init__(self, embeddings: Any) -> None:
        super().__init__()
        self.embeddings = embeddings

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        if cache is None:
            embedded: mx.array = self.embeddings(tokens, cache=None)
            return embedded
        width = self.embeddings.n - 1
        lengths = cache.lengths
        if cache[0] is None:
            cache[0] = mx.zeros((len(tokens), width), dtype=mx.int64)
        context = mx.concatenate([cache[0], tokens.astype(mx.int64)], axis=1)
        embedded = self.embeddings(tokens, cache=cache)
        if lengths is not None:
            ends = mx.clip(lengths, 0, tokens.shape[1])[:, None]
            cache[0] = mx.take_along_axis(context, ends + mx.arange(width), axis=1)
            cache.advance(tokens.shape[1])
        return embedded


class RaggedRows(nn.Module):  # type: ignore[misc]
    """A recurrent block, kept from updating its state with the padding on the right of a row.

    The input is cut wherever a row ends, and the block computes each piece with the rows that reach so far,
    from the state in which the piece before left them: what it does with a prompt in chunks, and right
    however the block is made. With r different lengths that is r calls, of no padding at all.

    Args:
        block: Called with `x` `[rows, tokens, …]` and, among its other arguments, a cache of arrays
            `[rows, …]`. Further arguments, and what it returns, may be arrays shaped as `x`; `offset` is a
            position.
    """

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def __call__(self, x: mx.array, *args: Any, **keywords: Any) -> Any:
        cache = next((value for value in (*args, *keywords.values()) if hasattr(value, "lengths")), None)
        if cache is None or cache.lengths is None:
            return self.block(x, *args, **keywords)
        left = _tokens_left(cache)
        lengths = [min(max(tokens, 0), x.shape[1]) for tokens in left]
        computed = _compute_pieces(self.block, x, args, keywords, cache, lengths)
        cache.advance(x.shape[1])
        cache.known_lengths = KnownLengths(cache.lengths, [tokens - x.shape[1] for tokens in left])
        return computed


def _tokens_left(cache: Any) -> list[int]:
    """Return the tokens of each row, as the host knows them: every layer would wait for the device."""
    known: KnownLengths | None = getattr(cache, "known_lengths", None)
    if known is not None and known.lengths is cache.lengths:
        return known.tokens
    tokens: list[int] = cache.lengths.tolist()
    return tokens


def _compute_pieces(
    block: Any, x: mx.array, args: Sequence[Any], keywords: dict[str, Any], cache: Any, lengths: Sequence[int]
) -> Any:
    """Compute the rows, longest first, so that the rows that reach a position are always the first ones."""
    from mlx.utils import tree_map
    from mlx_lm.models.cache import ArraysCache

    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    longest_first, back = mx.array(order), mx.argsort(mx.array(order))
    shape = x.shape[:2]

    def piece(value: Any, start: int, end: int, rows: int) -> Any:
        if value is cache:
            return states
        if isinstance(value, mx.array) and value.shape[:2] == shape:
            return value[longest_first[:rows], start:end]
        return value

    states = ArraysCache(len(cache.cache))
    states.cache = [None if state is None else state[longest_first] for state in cache.cache]
    pieces: list[Any] = []
    left: list[list[mx.array | None]] = []
    rows, start = len(order), 0
    for end in sorted({*lengths}):
        if end > start:
            inputs = {name: piece(value, start, end, rows) for name, value in keywords.items()}
            if "offset" in inputs:
                inputs["offset"] = _position(inputs["offset"], longest_first[:rows], start)
            positional = (piece(value, start, end, rows) for value in args)
            computed = block(piece(x, start, end, rows), *positional, **inputs)
            pieces.append(tree_map(lambda part: _pad_rows(part, shape[0]), computed))
            start = end
        going_on = sum(length > end for length in lengths)
        left.append([None if state is None else state[going_on:] for state in states.cache])
        states.cache = [None if state is None else state[:going_on] for state in states.cache]
        rows = going_on
    cache.cache = [_join_rows(parts, back) for parts in zip(*reversed(left), strict=True)]
    return tree_map(lambda *parts: _join_tokens(parts, shape[1])[back], pieces[0], *pieces[1:])


def _position(offset: Any, rows: mx.array, start: int) -> Any:
    return (offset[rows] if isinstance(offset, mx.array) and offset.ndim else offset) + start


def _pad_rows(computed: mx.array, rows: int) -> mx.array:
    missing = rows - computed.shape[0]
    return mx.pad(computed, [(0, missing), *[(0, 0)] * (computed.ndim - 1)]) if missing else computed


def _join_tokens(parts: Sequence[mx.array], tokens: int) -> mx.array:
    joined = mx.concatenate(list(parts), axis=1)
    missing = tokens - joined.shape[1]
    return mx.pad(joined, [(0, 0), (0, missing), *[(0, 0)] * (joined.ndim - 2)]) if missing else joined


def _join_rows(parts: Sequence[mx.array | None], back: mx.array) -> mx.array | None:
    """Return the states of all rows in their own order; rows without one begin with zeros, as in a batch."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    rows = back.size - sum(part.shape[0] for part in present)
    if rows:  # those of no tokens, which are the last
        present.append(mx.zeros((rows, *present[0].shape[1:]), present[0].dtype))
    return mx.concatenate(present)[back]


def share_positions(model: Any) -> None:
    """Give the queries of AFM's last layers the positions of the layer whose keys they reuse.

    By themselves they use the length of its cache, which equals a row's length only without padding.
    """
    last = model.model.layers[-1].self_attn
    last.rope = source = _KeptPositions(last.rope)
    for layer in model.model.kv_reuse_layers:
        layer.self_attn.rope = _SharedPositions(layer.self_attn.rope, source)


class _KeptPositions(nn.Module):  # type: ignore[misc]
    def __init__(self, rope: Any) -> None:
        super().__init__()
        self.rope = rope
        self._offset: Any = 0

    @property
    def offset(self) -> Any:
        return self._offset

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        self._offset = offset
        rotated: mx.array = self.rope(x, offset=offset)
        return rotated


class _SharedPositions(nn.Module):  # type: ignore[misc]
    def __init__(self, rope: Any, source: _KeptPositions) -> None:
        super().__init__()
        self.rope = rope
        self._source = source

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        rotated: mx.array = self.rope(x, offset=self._source.offset)
        return rotated


class RowStarts(nn.Module):  # type: ignore[misc]
    """RecurrentGemma's linear recurrence, which treats a sequence's first token in a way of its own.

    It recognizes a first token by the missing state. In a batch, an empty row has a state of zeros instead,
    which no state after a token equals.
    """

    def __init__(self, recurrence: Any) -> None:
        super().__init__()
        self.recurrence = recurrence

    def __call__(self, x: mx.array, cache: mx.array | None = None) -> tuple[mx.array, mx.array]:
        if cache is None:
            computed: tuple[mx.array, mx.array] = self.recurrence(x, cache)
            return computed
        begun = mx.any(cache != 0, axis=-1, keepdims=True)
        first, rest = x[:, :1], x[:, 1:]
        fresh, state = self.recurrence(first, None), self.recurrence(first, cache)
        outputs, last = mx.where(begun[:, None], state[0], fresh[0]), mx.where(begun, state[1], fresh[1])
        if rest.shape[1]:
            more, last = self.recurrence(rest, last)
            outputs = mx.concatenate([outputs, more], axis=1)
        return outputs, last


@attrs.frozen
class KnownFault:
    """A faulty file of mlx-lm, and the patch for its models. `digest`: digest of the faulty file; a release
    that mends the file has another and is not patched; `mend`: patch, applied to a loaded model in place.
    """

    digest: str
    mend: Callable[[Any], None]


def _replace(attribute: str, patch: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a patch that replaces a block by its attribute's name in each layer that has one."""

    def mend(model: Any) -> None:
        for layer in model.layers:
            if hasattr(layer, attribute):
                setattr(layer, attribute, patch(getattr(layer, attribute)))

    return mend


def _replace_recurrent(attribute: str, kind: str) -> Callable[[Any], None]:
    """Return a patch that computes padded rows in pieces, for blocks of one class with that name."""
    return _replace(attribute, lambda block: RaggedRows(block) if type(block).__name__ == kind else block)


def _mend_rwkv7(model: Any) -> None:
    model.layers[:] = [RaggedRows(layer) for layer in model.layers]


def _mend_recurrent_gemma(model: Any) -> None:
    _replace_recurrent("temporal_block", "RecurrentBlock")(model)
    for layer in model.layers:
        if isinstance(layer.temporal_block, RaggedRows):
            layer.temporal_block.block.rg_lru = RowStarts(layer.temporal_block.block.rg_lru)


def _mend_ngrams(model: Any) -> None:
    model.model.ngram_embeddings = NgramContext(model.model.ngram_embeddings)


KNOWN_FAULTS: Mapping[str, KnownFault] = {
    "afm7": KnownFault("70a5e78d3107f05f95401cd66f466682", share_positions),
    "baichuan_m1": KnownFault("6bb7606ca10db70f19a7322a4af5296e", _replace("self_attn", ConvolvedKeys)),
    "bailing_moe_linear": KnownFault(
        "2cd50b78bc6f12753af09996db7b6fd8", _replace_recurrent("attention", "LinearAttention")
    ),
    "gemma2": KnownFault("d9852b1133a2eab0f360dceaef646f54", _replace("self_attn", GroupedHeadsMask)),
    "jamba": KnownFault("aa75fe84ec246ee1a8c5b5c73acaa69e", _replace("mamba", RaggedRows)),
    "longcat_flash_ngram": KnownFault("c821b5151d80b2e756cfaacfc12faadf", _mend_ngrams),
    "mamba": KnownFault("eabb7525c8494acebe4d30d0eeab250c", _replace("mixer", RaggedRows)),
    "nemotron_h": KnownFault(
        "312d41f22e9525db29c55691194be660", _replace_recurrent("mixer", "NemotronHMamba2Mixer")
    ),
    "olmo_hybrid": KnownFault("12a3ed52eb7a8d41be13fa2cc9cfe223", _replace("linear_attn", RaggedRows)),
    "recurrent_gemma": KnownFault("da6f722180ac78aaf2ce568769e8e47f", _mend_recurrent_gemma),
    "rwkv7": KnownFault("2ea45313e1297e3b4b8e1a64742edf74", _mend_rwkv7),
}
"""Known faults by file name; falcon_mamba uses mamba's file.

minimax_m3_vl has no patch, and its rows decode alone: its sparse attention divides the padded cache into
blocks, and dividing each row instead would mean a rewrite.
"""


def patch_for_batching(model: Any) -> bool:
    """Patch a model whose architecture has a known fault; return whether it has one.

    A file with another digest is not patched, because a newer release may have mended it.

    Args:
        model: One of mlx-lm's, with its weights in memory.
    """
    architecture = type(model).__module__
    fault = KNOWN_FAULTS.get(architecture.rpartition(".")[2])
    if fault is None or digest_of_module(architecture) != fault.digest:
        return False
    fault.mend(model)
    return True
