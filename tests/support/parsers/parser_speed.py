"""Time that each parser takes for a token of four characters, in µs: the best of several rounds.

    python -m greenroom.tests.support.parsers.parser_speed [--characters N] [FORMAT …]

Fed are prose, calls, thoughts, and the beginning of a call that never ends; with `--characters 1000000` the
figures show that none grows with the text.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence

import structlog

from greenroom.engine.formats.registry import (
    REASONING_PARSERS,
    TOOL_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN

PROSE = "The quick brown fox, which is 3 < 4 years old,\njumps over [the] lazy dog {again}. "
ROUNDS = 15


def texts(tool_parser: str, characters: int) -> dict[str, str]:
    """Return texts to parse, each about as long as `characters`."""
    written = WRITTEN.get(tool_parser, PROSE)
    begun, value, _ = written.partition("Paris")
    return {
        "prose": repeated(PROSE, characters),
        "calls": "\n".join([written] * max(1, characters // len(written))),
        "unfinished": begun + repeated("a long value, ", characters) if value else "",
    }


def repeated(text: str, characters: int) -> str:
    return (text * (characters // len(text) + 1))[:characters]


def microseconds(tool_parser: str, reasoning_parser: str, text: str, in_reasoning: bool) -> float:
    """Return the time to parse one token, in µs."""
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
    best = float("inf")
    for _ in range(ROUNDS if len(text) <= 50_000 else 1):
        prepared = PreparedPrompt(
            tokens=(1,),
            stop_token_ids=frozenset(),
            max_tokens=1,
            tools=TOOLS,
            starts_in_reasoning=in_reasoning,
        )
        processor = StreamProcessor(
            make_tool_parser(tool_parser), make_reasoning_parser(reasoning_parser), prepared, lambda: "id"
        )
        began = time.process_time()
        for piece in pieces:
            processor.feed(piece)
        processor.finish()
        best = min(best, time.process_time() - began)
    return best / len(pieces) * 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of results for each parser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT")
    parser.add_argument("--characters", type=int, default=4_000)
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print(f"{'calls':24}{'prose':>9}{'calls':>9}{'unfinished':>12}")
    for name in sorted(chosen.formats or TOOL_PARSERS):
        if name in TOOL_PARSERS:
            costs = [
                microseconds(name, "null", text, in_reasoning=False) if text else 0.0
                for text in texts(name, chosen.characters).values()
            ]
            print(f"{name:24}{costs[0]:9.2f}{costs[1]:9.2f}{costs[2]:12.2f}", flush=True)
    print(f"\n{'thoughts':24}{'thought':>9}{'answer':>9}")
    prose = repeated(PROSE, chosen.characters)
    for name in sorted(chosen.formats or REASONING_PARSERS):
        if name in REASONING_PARSERS:
            thought, answer = (
                microseconds("null", name, prose, in_reasoning) for in_reasoning in (True, False)
            )
            print(f"{name:24}{thought:9.2f}{answer:9.2f}", flush=True)


if __name__ == "__main__":
    main()
