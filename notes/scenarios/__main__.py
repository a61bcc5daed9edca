"""Loads beyond those of `make bench`: shared prompts, conversations and images.

    PYTHONPATH=.src python -m greenroom.notes.scenarios URL|MODEL [--scenario NAME]... [--against URL]

shared-prompt: a new system prompt of `--long-tokens`, then three more questions to it
conversation:  an opening and `--turns` turns, each of which sends the whole conversation
images:        `--concurrency` streams, each about new images of `--image-sizes`, and a second turn of each
images-among-streams: a message with images that arrives among `--beside` streams of text

Servers, runs and reports are those of `make bench`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from contextlib import AsyncExitStack

import trio
from rich.console import Console

from greenroom.notes.scenarios.bare_continuation import BareContinuation
from greenroom.notes.scenarios.conversation import Conversation
from greenroom.notes.scenarios.images import Images, ImagesAmongStreams, Size
from greenroom.notes.scenarios.shared_prompt import SharedPrompt
from greenroom.tests.bench.figures import Results, as_json, print_tables
from greenroom.tests.bench.load_client import Prompts
from greenroom.tests.bench.scenarios import Measurement, Scenario
from greenroom.tests.bench.servers import TargetOptions, open_targets

SCENARIOS = ("shared-prompt", "conversation", "images", "images-among-streams")


def main() -> None:
    options = _parser().parse_args()
    targets = TargetOptions(
        target=options.target,
        against=options.against,
        bare=not options.no_bare,
        serve=tuple(options.serve),
    )
    model, results = trio.run(measure, targets, scenarios(options, targets), options.repeats)
    if options.json:
        print(json.dumps(as_json(results, model), indent=2))
    else:
        print_tables(results, model, Console())


def scenarios(options: Namespace, targets: TargetOptions) -> list[Scenario]:
    """Return the chosen scenarios."""
    tokens, words, sizes = options.tokens, options.prompt_words, tuple(options.image_sizes)
    chosen: list[Scenario] = []
    for name in options.scenario or SCENARIOS[:2]:
        match name:
            case "shared-prompt":
                chosen.append(SharedPrompt(options.long_tokens))
            case "conversation":
                bare = BareContinuation(targets.target) if targets.bare and not targets.is_url else None
                chosen.append(Conversation(options.turns, tokens, words, bare))
            case "images":
                chosen += [Images(streams, tokens, words, sizes) for streams in options.concurrency]
            case _:
                chosen.append(ImagesAmongStreams(options.beside, stream_words=words, sizes=sizes))
    return chosen


async def measure(targets: TargetOptions, chosen: list[Scenario], repeats: int) -> tuple[str, Results]:
    """Return the first server's model, and the results."""
    async with AsyncExitStack() as stack:
        servers = await open_targets(targets, stack)
        measurement = Measurement(servers, Prompts(), repeats, Console(stderr=True).print)
        results = [await measurement.measure(scenario) for scenario in chosen]
        return servers[0].client.endpoint.model, results


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m greenroom.notes.scenarios")
    parser.add_argument("target", metavar="URL|MODEL")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS)
    parser.add_argument("--against", metavar="URL")
    parser.add_argument("--no-bare", action="store_true")
    parser.add_argument("--serve", action="append", default=[], metavar="OPTION")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--beside", type=int, default=8)
    parser.add_argument("--long-tokens", type=int, default=3600)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt-words", type=int, default=32)
    parser.add_argument("--image-sizes", type=_size, nargs="+", default=[(640, 480)], metavar="WIDTHxHEIGHT")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    return parser


def _size(text: str) -> Size:
    width, _, height = text.partition("x")
    return int(width), int(height)


if __name__ == "__main__":
    main()
