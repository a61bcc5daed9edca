"""Rows that all want something else, against as many greedy ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from greenroom.http.bench.figures import Quantity, Sample
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.scenario import Scenario
from greenroom.http.bench.scenarios.streams import speeds
from greenroom.http.bench.target_server import Exchange, Request, TargetServer

ALTERNATIVES = 5
"""Log-probabilities that are asked for with every token."""


@attrs.frozen
class Mixed(Scenario):
    """Rows with a setting, a seed, penalties and log-probabilities each, and in turns as many greedy rows.

    A server that is fast because it ignores what was asked is no example: in the first run every row is
    asked again, alone, and has to get the same answer; log-probabilities have to come with every token.

    Args:
        rows: How many run at once.
        tokens: Longest answer.
        prompt_words: Length of each prompt.
    """

    name: ClassVar[str] = "mixed"
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "rate": Quantity("mixed rows", "tokens/s", 0),
        "greedy_rate": Quantity("greedy rows", "tokens/s", 0),
        "of_greedy": Quantity("mixed over greedy"),
        "of_batch_generator": Quantity("mixed over mlx-lm's BatchGenerator, greedy"),
        "gap_p50": Quantity("between tokens of mixed rows, p50", "ms", 1),
        "gap_p99": Quantity("between tokens of mixed rows, p99", "ms", 1),
        "verified": Quantity("rows that equal their solo run", "", 0),
    }

    rows: int = 16
    tokens: int = 64
    prompt_words: int = 32

    @property
    def case(self) -> str:
        return f"{self.rows} rows"

    async def run(self, contestant: TargetServer, prompts: Prompts, number: int) -> Sample:
        taken = await contestant.taken(row_fields(0, 0))
        mixed = [
            Request(
                prompts.chat(self.prompt_words),
                self.tokens,
                {field: value for field, value in row_fields(row, prompts.seed()).items() if field in taken},
            )
            for row in range(self.rows)
        ]
        greedy = [Request(prompts.chat(self.prompt_words), self.tokens) for _ in range(self.rows)]
        if number % 2:
            plain = await contestant.ask_together(greedy)
            exchanges = await contestant.ask_together(mixed)
        else:
            exchanges = await contestant.ask_together(mixed)
            plain = await contestant.ask_together(greedy)
        values = speeds(exchanges)
        if greedy_rate := speeds(plain).get("rate"):
            values["greedy_rate"] = greedy_rate
            values["of_greedy"] = values.get("rate", 0.0) / greedy_rate
        bare = await contestant.bare("batch_generator", plain)
        if bare is not None and bare.tokens:
            values["of_batch_generator"] = values.get("rate", 0.0) * bare.seconds / bare.tokens
        errors = _missing_log_probabilities(exchanges)
        if number == 0:
            refused = sorted(set(row_fields(0, 0)) - set(taken))
            errors += [f"the server refuses {', '.join(refused)}"] if refused else []
            values["verified"], differing = await _verify(contestant, mixed, exchanges)
            errors += differing
        return Sample(values, [exchange.answer for exchange in (*exchanges, *plain)], errors)


def row_fields(row: int, seed: int) -> dict[str, Any]:
    """What one row asks for, as fields of its request: other values than its neighbours'."""
    return {
        "temperature": 0.6 + 0.1 * (row % 8),
        "top_p": 0.8 + 0.01 * (row % 16),
        "top_k": 20 + 10 * row,
        "min_p": 0.002 * (row % 16),
        "repetition_penalty": 1.02 + 0.02 * (row % 10),
        "presence_penalty": 0.1 + 0.1 * (row % 8),
        "frequency_penalty": 0.05 + 0.05 * (row % 7),
        "seed": seed,
        "logprobs": True,
        "top_logprobs": ALTERNATIVES,
        "ignore_eos": True,
    }


def _missing_log_probabilities(exchanges: Sequence[Exchange]) -> list[str]:
    missing = 0
    for exchange in exchanges:
        given = exchange.answer.alternatives
        complete = len(given) >= len(exchange.answer.arrivals) and all(n == ALTERNATIVES for n in given)
        missing += exchange.answer.error is None and not complete
    return [f"{missing} of {len(exchanges)} rows lack log-probabilities"] if missing else []


async def _verify(
    contestant: TargetServer, requests: Sequence[Request], exchanges: Sequence[Exchange]
) -> tuple[float, list[str]]:
    """How many rows get the same answer alone, and what to say if not all do."""
    differing = 0
    for request, exchange in zip(requests, exchanges, strict=True):
        alone = await contestant.ask(request.messages, request.max_tokens, **request.fields)
        same = (alone.answer.text, alone.answer.tokens) == (exchange.answer.text, exchange.answer.tokens)
        differing += not same or exchange.answer.error is not None
    if not differing:
        return len(requests), []
    return len(requests) - differing, [
        f"{differing} of {len(requests)} seeded rows differ from their solo runs: the speed does not count"
    ]
