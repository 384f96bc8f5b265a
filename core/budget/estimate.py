"""What a call may cost and what it did cost, in exact integer arithmetic (seed: "Paid requests…"; memory-agent.md §10.2).

Prices are nano-units per million tokens. Every division rounds up, so that no rounding error is ever on the caller's side.
"""

from typing import Protocol

from core.budget.model import Estimate

PER = 1_000_000
"""Prices are per this many tokens."""
FLAT = {"jev": 10_000_000, "openai": 10_000_000, "systemone": 10_000_000, "deepseek": 250_000_000}
"""What is reserved at least: USD 0.01, CNY 0.25."""
BYTES_PER_TOKEN = {"jev": 4, "openai": 4, "systemone": 4, "deepseek": 1}
"""How body bytes are taken for tokens: four a token, but for DeepSeek each byte as one."""


class Prices(Protocol):
    """Nano-units per million tokens."""

    @property
    def price_in(self) -> int: ...

    @property
    def price_out(self) -> int: ...


def estimate(kind: str, prices: Prices, body_bytes: int, output_limit: int) -> Estimate:
    """Of one attempt of a paid kind: the flat sum, or what body and output limit could cost with 20 % margin if that is
    more; and its input alone, without margin. `output_limit` in tokens, 0 for decisions and embeddings.

    JEV reserves the flat sum always: its limits keep a request far below it."""
    unit = BYTES_PER_TOKEN[kind] * PER
    input_cost = _up(body_bytes * prices.price_in, unit)
    possible = 0
    if kind != "jev":
        # One fraction, rounded once: 12/10 × (bytes × in / unit + tokens × out / million).
        both = body_bytes * prices.price_in + output_limit * prices.price_out * BYTES_PER_TOKEN[kind]
        possible = _up(12 * both, 10 * unit)
    return Estimate(reserve=max(FLAT[kind], possible, input_cost), input=input_cost)


def cost(prices: Prices, input_tokens: int, output_tokens: int) -> int:
    """What a metered call cost: tokens at their prices, rounded up to the nano-unit once."""
    return _up(input_tokens * prices.price_in + output_tokens * prices.price_out, PER)


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit)
