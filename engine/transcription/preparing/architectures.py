"""Which models of mlx-audio that hear are served beside Whisper."""

from __future__ import annotations

ONE_PIECE_ARCHITECTURES = frozenset(
    {
        "canary",
        "cohere_asr",
        "fireredasr2",
        "glmasr",
        "granite_speech",
        "mms",
        "moonshine",
        "nemotron_asr",
        "parakeet",
        "qwen3_asr",
        "sensevoice",
    }
)
"""Those that take samples and give text, and read nothing but their own folder. The rest want something else
(a text to align, a question, a conversation) or fetch what they lack."""
