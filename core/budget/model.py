"""What the ledger speaks of: money, accounts, who spends, and a reservation.

Money is `int` nano-units of the provider's currency: one USD is 1,000,000,000.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal, cast, get_args
from uuid import UUID

NANO = 1_000_000_000
LARGEST_CAP = 1_000_000_000
"""Of a cap, in whole units: far below where nano-units would leave 64 bits."""

CallClass = Literal["read", "flush", "consolidation"]
CALL_CLASSES: tuple[CallClass, ...] = get_args(CallClass)

CapScope = Literal["provider", "tenant", "store", "job"]

CURRENCIES = {"jev": "USD", "deepseek": "CNY", "openai": "USD", "systemone": "USD"}
"""The paid providers' accounts. Every other provider name is unpaid: counted, never reserved."""


@dataclass(frozen=True)
class Spender:
    """Who pays for a call and what for. `job_id`: the job whose cap counts; a child spends as its parent."""

    tenant_id: UUID
    store_id: UUID | None
    job_id: UUID | None
    stage: str
    """plan, judge, extract, link, embed, …"""
    call_class: CallClass


@dataclass(frozen=True)
class Estimate:
    """`reserve`: set aside before the call. `input`: what it is settled at when nobody can say what it cost: its input."""

    reserve: int
    input: int


@dataclass(frozen=True)
class Reservation:
    """Money set aside for one attempt; settle it or release it. All later steps go by `entry_id` and may be repeated."""

    entry_id: UUID
    provider: str
    spender: Spender
    estimate: Estimate


def nanos(amount: Decimal | float | int | str) -> int:
    """Whole units as nano-units, e.g. "0.01" as 10,000,000; rounded to the nearest, but never to 0. Raises ValueError."""
    try:
        value = Decimal(str(amount))
    except ArithmeticError:
        raise ValueError(f"{amount!r:.40} is not an amount") from None
    if not value.is_finite() or not 0 <= value <= LARGEST_CAP:
        raise ValueError(f"must be between 0 and {LARGEST_CAP}")
    rounded = int((value * NANO).to_integral_value(ROUND_HALF_EVEN))
    if value and not rounded:
        raise ValueError("is too small: the smallest amount is 0.000000001, and 0 stops all spending")
    return rounded


def units(amount: int) -> str:
    """Nano-units as a decimal string in whole units without trailing zeros: 10,000,000 as "0.01"."""
    text = f"{Decimal(amount).scaleb(-9):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_caps(value: object) -> dict[str, int]:
    """Caps by provider in whole units, as JSON text or decoded, as nano-units. Raises ValueError that says what is wrong."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError as error:
            raise ValueError(f'is not JSON ({error}): use {{"jev": 10}}') from None
    if not isinstance(value, Mapping):
        raise ValueError('must be an object of caps by provider, like {"jev": 10}')
    caps: dict[str, int] = {}
    for provider, amount in cast("Mapping[str, object]", value).items():
        if provider not in CURRENCIES:
            raise ValueError(f"{provider!r:.60} has no account: choose of {', '.join(CURRENCIES)}")
        if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal | str):
            raise ValueError(f"{provider}: must be an amount in {CURRENCIES[provider]}")
        try:
            caps[provider] = nanos(amount)
        except ValueError as error:
            raise ValueError(f"{provider}: {error}") from None
    return caps
