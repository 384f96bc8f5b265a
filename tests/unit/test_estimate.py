"""What a call reserves and costs, against the figures of memory-agent.md §10.2."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.budget.estimate import FLAT, cost, estimate
from core.budget.model import LARGEST_CAP, NANO, nanos, parse_caps, units
from core.settings import SettingsError, load


@dataclass(frozen=True)
class Prices:
    price_in: int
    price_out: int


JEV = Prices(42_000_000, 0)
DEEPSEEK = Prices(2 * NANO, 8 * NANO)
MINI = Prices(400_000_000, 1_600_000_000)


def test_the_figures_of_the_reference() -> None:
    assert estimate("deepseek", DEEPSEEK, 160_000, 2_048).reserve == 403_660_800  # CNY 0.4037
    assert estimate("openai", MINI, 160_000, 2_048).reserve == 23_132_160  # USD 0.02313
    assert estimate("jev", JEV, 96_000, 0).reserve == 10_000_000


@pytest.mark.parametrize(
    ("kind", "prices", "body"), [("openai", MINI, 50_565), ("deepseek", DEEPSEEK, 95_974), ("openai", MINI, 48_000)]
)
def test_the_flat_sum_is_enough_up_to_here(kind: str, prices: Prices, body: int) -> None:
    assert estimate(kind, prices, body, 2_048).reserve == FLAT[kind]


@pytest.mark.parametrize(("kind", "prices", "body"), [("openai", MINI, 50_566), ("deepseek", DEEPSEEK, 95_976)])
def test_and_not_beyond(kind: str, prices: Prices, body: int) -> None:
    assert estimate(kind, prices, body, 2_048).reserve > FLAT[kind]


def test_the_input_estimate_has_no_output_and_no_margin() -> None:
    assert estimate("deepseek", DEEPSEEK, 1_000, 4_096).input == 2_000_000
    assert estimate("openai", MINI, 4_000, 4_096).input == 400_000
    assert estimate("jev", JEV, 4_000, 0).input == 42_000
    assert estimate("openai", MINI, 1, 0).input == 100  # a quarter of a token
    assert estimate("openai", Prices(1, 0), 1, 0).input == 1  # never rounded down


def test_the_cost_is_the_meters_tokens_at_their_prices() -> None:
    assert cost(JEV, 1_000_000, 500) == 42_000_000
    assert cost(DEEPSEEK, 1, 1) == 10_000
    assert cost(Prices(1, 1), 1, 1) == 1  # two millionths: rounded up, once


@given(
    kind=st.sampled_from(["jev", "openai", "deepseek", "systemone"]),
    body=st.integers(0, 10_000_000),
    output=st.integers(0, 100_000),
    price_in=st.integers(0, 10**12),
    price_out=st.integers(0, 10**12),
)
def test_nothing_is_ever_settled_above_what_was_set_aside_for_it(
    kind: str, body: int, output: int, price_in: int, price_out: int
) -> None:
    made = estimate(kind, Prices(price_in, price_out), body, output)
    assert 0 <= made.input <= made.reserve
    assert made.reserve >= FLAT[kind]


@given(st.integers(0, LARGEST_CAP * NANO))
def test_amounts_are_written_and_read_without_loss(amount: int) -> None:
    assert nanos(units(amount)) == amount


def test_amounts_as_people_write_them() -> None:
    assert (nanos("0.01"), nanos(10), nanos(0.1), nanos("1e-9")) == (10_000_000, 10 * NANO, 100_000_000, 1)
    assert (units(0), units(10 * NANO), units(1), units(-5)) == ("0", "10", "0.000000001", "-0.000000005")
    for wrong in ("-1", "x", "nan", "inf", "", LARGEST_CAP + 1):
        with pytest.raises(ValueError, match=r"amount|between"):
            nanos(wrong)
    assert (nanos("0"), nanos("0.0"), nanos("6e-10")) == (0, 0, 1)
    for tiny in ("5e-10", "0.0000000000001", 1e-13):
        with pytest.raises(ValueError, match="too small"):
            nanos(tiny)


def test_configured_caps_are_read_from_json_and_faults_name_the_variable() -> None:
    assert load({"MUNIMENT_BUDGETS": '{"jev": 10, "deepseek": 60.5}'}).budgets == {
        "jev": 10 * NANO,
        "deepseek": 60_500_000_000,
    }
    assert load({}).budgets == {}
    for wrong in ("10", "{", '{"jev": -1}', '{"local": 1}', '{"jev": true}', '{"jev": null}'):
        with pytest.raises(SettingsError, match=r"MUNIMENT_BUDGETS: .+"):
            load({"MUNIMENT_BUDGETS": wrong})
    assert parse_caps({"jev": "0.5"}) == {"jev": 500_000_000}
