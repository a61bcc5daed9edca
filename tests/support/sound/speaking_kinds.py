"""Files of the folders of tiny speech models, by mlx-audio's name of the architecture."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.tests.support.sound.tiny_sound_models import SoundKind

SPEAKING_KINDS: Mapping[str, SoundKind] = {}
