"""Requests with different parameters, compared with as many greedy ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from greenroom.tests.bench.figures import Metric, Sample
from greenroom.tests.bench.measurement import Scenario
from greenroom.tests.bench.prompts import Prompts
from greenroom.tests.bench.streams import speeds
from greenroom.tests.bench.target_server import Exchange, Request, TargetServer

ALTERNATIVES = 5
"""Number of top candidates requested for every token."""


@attrs.frozen
class Mixed(Scenario):
    """Requests with individual sampling, penalties and log-probabilities, alternating with greedy ones.

    To catch servers that ignore parameters, the first run repeats every request alone and expects the same
    response, with log-probabilities for every token.

    Args:
        requests: Number of concurrent requests.
        tokens: Longest response, in tokens.
        prompt_words: Length of each prompt, in words.
    """

    name: ClassVar[str] = "mixed"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "rate": Metric("mixed requests", "tokens/s", 0),
        "greedy_rate": Metric("greedy requests", "tokens/s", 0),
        "of_greedy": Metric("mixed over greedy"),
        "of_batch_generator": Metric("mixed over mlx-lm's BatchGenerator, greedy"),
        "gap_p50": Metric("between tokens of mixed requests, p50", "ms", 1),
        "gap_p99": Metric("between tokens of mixed requests, p99", "ms", 1),
        "verified": Metric("requests that equal their solo run", "", 0),
    }

    requests: int = 16
    tokens: int = 64
    prompt_words: int = 32

    @property
    def case(self) -> str:
        return f"{self.requests} requests"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        accepted = await target.accepted_fields(request_fields(0, 0))
        mixed = [
            Request(
                prompts.chat(self.prompt_words),
                self.tokens,
                {
                    field: value
                    for field, value in request_fields(index, prompts.new_seed()).items()
                    if field in accepted
                },
            )
            for index in range(self.requests)
        ]
        greedy = [Request(prompts.chat(self.prompt_words), self.tokens) for _ in range(self.requests)]
        if number % 2:
            plain = await target.ask_together(greedy)
            exchanges = await target.ask_together(mixed)
        else:
            exchanges = await target.ask_together(mixed)
            plain = await target.ask_together(greedy)
        values = speeds(exchanges)
        if greedy_rate := speeds(plain).get("rate"):
            values["greedy_rate"] = greedy_rate
            values["of_greedy"] = values.get("rate", 0.0) / greedy_rate
        bare = await target.run_bare_loop("batch_generator", plain)
        if bare is not None and bare.tokens:
            values["of_batch_generator"] = values.get("rate", 0.0) * bare.seconds / bare.tokens
        errors = _missing_log_probabilities(exchanges)
        if number == 0:
            refused = sorted(set(request_fields(0, 0)) - set(accepted))
            errors += [f"the server refuses {', '.join(refused)}"] if refused else []
            values["verified"], differing = await _verify(target, mixed, exchanges)
            errors += differing
        return Sample(values, [exchange.answer for exchange in (*exchanges, *plain)], errors)


def request_fields(number: int, seed: int) -> dict[str, Any]:
    """Return the parameters of one request, which differ from those of its neighbors."""
    return {
        "temperature": 0.6 + 0.1 * (number % 8),
        "top_p": 0.8 + 0.01 * (number % 16),
        "top_k": 20 + 10 * number,
        "min_p": 0.002 * (number % 16),
        "repetition_penalty": 1.02 + 0.02 * (number % 10),
        "presence_penalty": 0.1 + 0.1 * (number % 8),
        "frequency_penalty": 0.05 + 0.05 * (number % 7),
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
    return [f"{missing} of {len(exchanges)} requests lack log-probabilities"] if missing else []


async def _verify(
    target: TargetServer, requests: Sequence[Request], exchanges: Sequence[Exchange]
) -> tuple[float, list[str]]:
    """Return the number of requests whose response is the same alone, and errors if not all are."""
    differing = 0
    for request, exchange in zip(requests, exchanges, strict=True):
        alone = await target.ask(request.messages, request.max_tokens, **request.fields)
        same = (alone.answer.text, alone.answer.tokens) == (exchange.answer.text, exchange.answer.tokens)
        differing += not same or exchange.answer.error is not None
    if not differing:
        return len(requests), []
    return len(requests) - differing, [
        f"{differing} of {len(requests)} seeded requests differ from their solo runs; the speed is void"
    ]
