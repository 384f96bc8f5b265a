"""Work that waits for money: a provider's cap that is used up is the operator's to raise."""

from collections.abc import Sequence

from core.budget.caps import Cap
from core.budget.model import units
from core.doctor.model import OK, WRONG, Finding
from core.jobs.backlog import DeferredReason

NAME = "money"
NEAR = 0.85
"""Of a cap. Background work stops at nine tenths, and one call before it would pass them."""


def check_money(accounts: Sequence[Cap], waiting: Sequence[DeferredReason]) -> Finding:
    """A cap that keeps work waiting is meant to when it is a tenant's, a store's or a job's, or is 0: that is no fault."""
    jobs = sum(entry.jobs for entry in waiting if entry.reason == "budget")
    spent = [
        f"{one.provider}: {units(one.spent)} of {units(one.cap)} {one.currency} spent, {units(one.reserved)} reserved"
        for one in accounts
        if one.cap and one.spent + one.reserved >= NEAR * one.cap
    ]
    if not jobs:
        return Finding(NAME, OK, "no job waits for money")
    if not spent:
        return Finding(
            NAME, OK, f"{jobs} jobs wait for a cap that is meant to stop them: 0, or of their tenant, store or job"
        )
    return Finding(
        NAME, WRONG, f"{jobs} jobs wait for money, here or under a narrower cap; {'; '.join(spent)}", "budget-spent",
        "`muniment budget set PROVIDER AMOUNT` if more may be spent: they go on at once",
    )  # fmt: skip
