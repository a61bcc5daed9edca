"""Tiny SentencePiece tokenizers, for architectures whose code reads no other kind."""

from __future__ import annotations

import functools
import io

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@functools.cache
def sentence_pieces(tokens: tuple[str, ...]) -> bytes:
    """Return a model file with one piece per letter.

    Args:
        tokens: Further pieces, each of which stands for its own text.
    """
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([LETTERS, " ".join(LETTERS)]),
        model_writer=written,
        model_type="char",
        vocab_size=1000,
        hard_vocab_limit=False,
        user_defined_symbols=list(tokens),
        minloglevel=2,
    )
    return written.getvalue()


def piece_count(tokens: tuple[str, ...]) -> int:
    """Return the size of the vocabulary of `sentence_pieces`."""
    import sentencepiece

    return int(sentencepiece.SentencePieceProcessor(model_proto=sentence_pieces(tokens)).get_piece_size())
