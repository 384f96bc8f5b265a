"""What each way for an attempt to end does to its money (seed: "Successful metered calls settle…"; memory-agent.md §10.2).

Every attempt reserves and ends on its own; what is settled is compared with the fake provider's own bill.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from core.budget import estimate as pricing
from core.errors import BudgetSpent
from core.models.attempt import SETTLE_SECONDS, START_SECONDS
from tests.fakes.attempting import ask, gateway, outcome, profile
from tests.fakes.fleet import until
from tests.fakes.models import Alone
from tests.fakes.provider import Provider, Step, provider

PAID = ("jev", "deepseek", "openai")
OWN = {"model": "own-1", "priceIn": 0.3, "priceOut": 1.2}
FREE = {
    "refused-401": Step(status=401),
    "refused-400": Step(status=400),
    "throttled": Step(status=429, headers={"Retry-After": "9999"}),
    "failed-500": Step(status=500, headers={"Retry-After": "9999"}),
    "redirected": Step(status=302, headers={"Location": "/elsewhere"}),
}
GUESSED = {
    "reset-after-sending": Step(reset="after"),
    "cut-in-the-body": Step(cut=True),
    "not-json": Step(body="<html>"),
    "no-metering": Step(patch={"usage": None}),
    "metering-beyond-belief": Step(usage=(2**53 - 1, 1)),
    "metering-of-strings": Step(patch={"usage": {"input_tokens": "7", "prompt_tokens": "7"}}),
}
METERED = {
    "garbled": Step(patch={"answers": None, "choices": None}, usage=(1234, 56)),
    "reasoning": Step(reasoning=777),
    "nothing-used": Step(usage=(0, 0)),
}


@pytest.fixture
def fake() -> Iterator[Provider]:
    with provider(charge={"own-1": (300, 1_200)}) as running:
        yield running


def spent_by(opened: Alone, fake: Provider, kind: str, step: Step, **fields: Any) -> list[tuple[str, int]]:
    """How the money of one attempt that meets `step` ended."""
    fake.script([step])
    outcome(lambda: ask(opened, profile(fake, kind, **{"maxAttempts": 1, **fields}), "consolidation"))
    until(lambda: opened.purse.open == 0, 5)
    return [(how, cost) for how, _, cost in opened.purse.ended]


@pytest.mark.parametrize("kind", PAID)
@pytest.mark.parametrize("step", FREE.values(), ids=FREE)
def test_a_refusal_costs_nothing(fake: Provider, kind: str, step: Step) -> None:
    with gateway() as opened:
        assert spent_by(opened, fake, kind, step) == [("released", 0)]


@pytest.mark.parametrize("kind", PAID)
def test_what_never_connected_costs_nothing(fake: Provider, kind: str) -> None:
    fake.refuse()
    with gateway() as opened:
        assert spent_by(opened, fake, kind, Step()) == [("released", 0)]
    assert fake.log == []


@pytest.mark.parametrize("kind", PAID)
@pytest.mark.parametrize("step", GUESSED.values(), ids=GUESSED)
def test_what_may_have_been_billed_is_settled_at_its_input_estimate(fake: Provider, kind: str, step: Step) -> None:
    with gateway() as opened:
        assert spent_by(opened, fake, kind, step) == [("estimated", opened.purse.reserved[0].input)]
        assert 0 < opened.purse.reserved[0].input < opened.purse.reserved[0].reserve


@pytest.mark.parametrize(
    ("kind", "fields"), [*((kind, {}) for kind in PAID), ("openai", OWN)], ids=[*PAID, "own-prices"]
)
@pytest.mark.parametrize("step", [Step(), *METERED.values()], ids=["good", *METERED])
def test_s12_s13_what_is_metered_is_settled_at_the_published_price(
    fake: Provider, kind: str, fields: dict[str, Any], step: Step
) -> None:
    """Whether or not the reply can be used; reasoning tokens are part of the output on every backend."""
    with gateway() as opened:
        assert spent_by(opened, fake, kind, step, **fields) == [("settled", fake.log[0].cost_nanos)]
        assert opened.purse.tokens == [(fake.log[0].input_tokens, fake.log[0].output_tokens)]


@pytest.mark.parametrize("kind", ["deepseek", "openai"])
def test_s11_a_cut_reply_is_paid_and_never_asked_for_again(fake: Provider, kind: str) -> None:
    fake.always(Step(finish="length", usage=(10, 1024)))
    with gateway() as opened:
        assert outcome(lambda: ask(opened, profile(fake, kind))) == "Cut"
        assert opened.purse.ended == [("settled", "cut", fake.log[0].cost_nanos)]
    assert len(fake.log) == 1


def test_every_attempt_reserves_and_ends_on_its_own(fake: Provider) -> None:
    fake.script([Step(status=503), Step(cut=True), Step(body="?"), Step()])
    with gateway() as opened:
        assert ask(opened, profile(fake))
        assert [how for how, _, _ in opened.purse.ended] == ["released", "estimated", "estimated", "settled"]
        assert len(opened.purse.reserved) == 4
    assert len({row.client_id for row in fake.log}) == 4, "each bears the id of its own reservation"


def test_the_ledger_knows_how_long_an_attempt_may_take(fake: Provider) -> None:
    """Not only until the caller gives up on it: it runs on to the profile's time."""
    with gateway() as opened:
        assert ask(opened, profile(fake, timeoutSeconds=400))
        assert opened.purse.reply_seconds == [400 + START_SECONDS + SETTLE_SECONDS]


@pytest.mark.parametrize("step", [Step(), Step(status=401)], ids=["answered", "refused"])
def test_an_attempts_money_is_settled_before_the_fleet_hears_of_its_answer(
    fake: Provider, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    still_open: list[int] = []
    with gateway() as opened:

        def answered(circuit: str, *, trial: bool) -> None:
            still_open.append(opened.purse.open)
            raise RuntimeError(f"{circuit}, {trial}")

        monkeypatch.setattr(opened.circuits, "answered", answered)
        fake.script([step])
        assert outcome(lambda: ask(opened, profile(fake))) == "ModelUnavailable"
        assert still_open == [0]
        assert len(opened.purse.ended) == 1


def test_a_sent_attempt_that_meets_an_error_of_ours_is_closed_with_its_guess(
    fake: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway() as opened:
        monkeypatch.setattr(pricing, "cost", lambda *_: 1 // 0)
        assert outcome(lambda: ask(opened, profile(fake))) == "ModelUnavailable"
        assert opened.purse.ended == [("estimated", "lost", opened.purse.reserved[0].input)]


def test_a_spent_budget_is_named_and_nothing_is_sent(fake: Provider) -> None:
    with gateway() as opened:
        opened.purse.refuses = BudgetSpent("jev: the cap is spent", provider="jev", cap="provider")
        with pytest.raises(BudgetSpent):
            ask(opened, profile(fake))
    assert fake.log == []


@pytest.mark.parametrize("kind", ["local", "systemone"])
def test_an_unpaid_call_is_counted_with_its_outcome_and_never_reserved(fake: Provider, kind: str) -> None:
    fake.script([Step(status=503), Step(body="?"), Step()])
    with gateway() as opened:
        assert ask(opened, profile(fake, kind))
        assert [(how, told) for how, told, _ in opened.purse.ended] == [
            ("counted", "failed"), ("counted", "unparsable"), ("counted", "ok"),
        ]  # fmt: skip
        assert opened.purse.reserved == []
        assert opened.purse.tokens[-1] == (fake.log[-1].input_tokens, fake.log[-1].output_tokens)
