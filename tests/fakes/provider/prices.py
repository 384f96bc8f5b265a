"""What the fake charges: its own table and its own count, so that a mistake in the product's shows.

Nano-units of the model's currency per token, input and output: the published prices (memory-agent.md §9), DeepSeek at
its peak price without cache, which is what the ledger is to record. Reasoning tokens are part of the output.
"""

import zlib
from collections.abc import Mapping

PRICES: dict[str, tuple[int, int]] = {
    "jev-": (42, 0),
    "deepseek-": (2_000, 8_000),
    "gpt-4.1-mini": (400, 1_600),
    "gpt-4o-mini": (150, 600),
    "text-embedding-3-small": (20, 0),
}
"""By the beginning of the model's name. Any other model is free, unless a test says otherwise."""


def cost(model: str, tokens: tuple[int, int], prices: Mapping[str, tuple[int, int]]) -> int:
    """Nano-units for (input, output) tokens."""
    for table in (prices, PRICES):
        for name, (price_in, price_out) in table.items():
            if model.startswith(name):
                return tokens[0] * price_in + tokens[1] * price_out
    return 0


def input_tokens(body: bytes) -> int:
    """About four bytes a token, and never what an estimate from the length alone would give."""
    return len(body) // 4 + 1 + zlib.crc32(body) % 7


def output_tokens(text: str) -> int:
    return len(text) // 4 + 1
