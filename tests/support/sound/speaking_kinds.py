"""What is written into the folders of tiny models that speak, by mlx-audio's name of their architecture."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.tests.support.sound.tiny_sound_models import SoundKind

SPEAKING_KINDS: Mapping[str, SoundKind] = {}
