"""Random prompts, new in every run, so that no cache contains them."""

from __future__ import annotations

import random
from typing import Any

from greenroom.tests.bench.load_client import ChatMessages

_VOCABULARY = """
able arch autumn badge barn beach bench blade board book bottle brass brick brook cabin camp candle card
castle cedar chair chart circle clock coal coin coral corn crane crown curtain dawn dish door dream dust
earth edge engine farm fence field fire flame flock floor flute forest fork fountain frame fruit gate glass
glove grain grass grove hail harbor heart herb honey horn house inch iron ivory jar kettle king knot lamp
laurel leaf lens light lime lion loom marble mask metal mint mist moss mouse nail nest north oasis ocean
onion orange otter owl palace paper path pebble piano pine planet pocket pond prism queen rain reed rice
ring road rock root rose saddle salt scale sea shadow ship silk sky smoke song spice spring star stone straw
street summer swan tea tent thunder tiger tower train tulip valley velvet vine wagon water wax west wheat
willow window winter wood wren year
"""
WORDS = _VOCABULARY.split()


class Prompts:
    """An endless source of prompts.

    Args:
        seed: Seed of a repeatable sequence; None for a new one each time.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def text(self, words: int) -> str:
        """Return that many random words."""
        return " ".join(self._random.choices(WORDS, k=words))

    def chat(self, words: int) -> ChatMessages:
        """Return a conversation of one message."""
        return [{"role": "user", "content": self.text(words)}]

    def new_seed(self) -> int:
        """Return a seed for a request, or for another `Prompts`."""
        return self._random.getrandbits(31)


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)
