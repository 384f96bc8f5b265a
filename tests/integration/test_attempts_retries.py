"""Which failures are tried again, how often and after what wait (seed: "A call retries…"; memory-agent.md §10.1).

Against a real HTTP server, on a clock that skips the waits. The dice give 1 unless a test says otherwise: the longest waits.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from core.models.model import BadReply, Cut, ModelRefused, ModelUnavailable
from tests.fakes.attempting import ask, gateway, outcome, profile
from tests.fakes.provider import Provider, Step, provider

RETRIED = (408, 425, 429, 500, 502, 503, 504, 524, 529)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""What the tests' clock shows at first."""
UNNAMED = {
    "absent": {},
    "zero": {"Retry-After": "0"},
    "zero-ms": {"retry-after-ms": "0"},
    "invalid": {"Retry-After": "soon"},
    "negative": {"Retry-After": "-3"},
    "past": {"Retry-After": format_datetime(NOON - timedelta(hours=1), usegmt=True)},
}
"""A 429 that names no wait."""
BAD_REPLIES = {
    "not-json": Step(body="<html>hello</html>"),
    "empty": Step(body=""),
    "no-answers": Step(patch={"answers": None}),
    "another-answer": Step(patch={"answers": {"other": {"type": "noul", "noul": 0.5}}}),
    "missing-answer": Step(patch={"answers": {"q": None}}),
    "wrong-type": Step(patch={"answers": {"q": {"type": "score"}}}),
    "missing-probability": Step(patch={"answers": {"q": {"noul": None}}}),
    "out-of-range": Step(patch={"answers": {"q": {"noul": 1.5}}}),
    "missing-metering": Step(patch={"usage": None}),
    "wrong-metering": Step(patch={"usage": {"input_tokens": -1}}),
    "no-model": Step(patch={"model": None}),
}


@pytest.fixture
def fake() -> Iterator[Provider]:
    with provider() as running:
        yield running


# Retried, and not -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", RETRIED)
@pytest.mark.parametrize("call_class", ["read", "flush", "consolidation"])
def test_a_status_of_the_list_is_tried_again(fake: Provider, status: int, call_class: Any) -> None:
    fake.script([Step(status=status), Step(status=status)])
    with gateway() as opened:
        assert ask(opened, profile(fake), call_class)
    assert [row.status for row in fake.log] == [status, status, 200]


@pytest.mark.parametrize(
    "step", [Step(reset="before"), Step(reset="after"), Step(cut=True)], ids=["before", "after", "cut"]
)
def test_a_broken_connection_is_tried_again(fake: Provider, step: Step) -> None:
    fake.script([step, step, step])
    with gateway() as opened:
        assert ask(opened, profile(fake))
    assert len(fake.log) == 4


def test_a_refused_connection_is_tried_again(fake: Provider) -> None:
    fake.refuse()
    with gateway() as opened:
        opened.clock.asleep = lambda _: fake.listen()
        assert ask(opened, profile(fake))
        assert opened.seen.attempts == [("jev", "unreachable"), ("jev", "ok")]


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 409, 413, 422, 451, 301, 302, 307])
def test_a_refusal_is_final_and_says_which_profile_and_status(fake: Provider, status: int) -> None:
    fake.script([Step(status=status, headers={"Location": f"{fake.url}/elsewhere"})])
    with gateway() as opened, pytest.raises(ModelRefused, match=rf"profile jev: .*{status}") as refused:
        ask(opened, profile(fake))
    assert refused.value.status_code == status
    assert [row.path for row in fake.log] == ["/v1/systemone"], "redirects are off, and nothing is tried again"


@pytest.mark.parametrize("status", [501, 505, 507])
def test_another_server_error_is_not_tried_again(fake: Provider, status: int) -> None:
    fake.script([Step(status=status)])
    with gateway() as opened, pytest.raises(ModelUnavailable, match=str(status)):
        ask(opened, profile(fake))
    assert len(fake.log) == 1


@pytest.mark.parametrize("step", BAD_REPLIES.values(), ids=BAD_REPLIES)
def test_a_reply_that_does_not_parse_or_hold_is_tried_again_once(fake: Provider, step: Step) -> None:
    fake.script([step])
    with gateway() as opened:
        assert ask(opened, profile(fake))
        assert len(fake.log) == 2
        fake.script([step, step, Step()])
        with pytest.raises(BadReply):
            ask(opened, profile(fake))
    assert len(fake.log) == 4, "once, not as often as there are attempts"


def test_a_bad_reply_and_other_failures_share_the_attempts(fake: Provider) -> None:
    fake.script([Step(body="?"), Step(status=503), Step(status=503), Step(status=503), Step()])
    with gateway() as opened, pytest.raises(ModelUnavailable):
        ask(opened, profile(fake))
    assert len(fake.log) == 4


@pytest.mark.parametrize("kind", ["deepseek", "openai", "local"])
def test_a_token_length_finish_rejects_the_reply_and_the_same_request_is_not_sent_again(
    fake: Provider, kind: str
) -> None:
    fake.always(Step(finish="length"))
    with gateway() as opened, pytest.raises(Cut):
        ask(opened, profile(fake, kind))
    assert len(fake.log) == 1


def test_an_unpaid_model_needs_no_metering(fake: Provider) -> None:
    fake.always(Step(patch={"usage": None}))
    with gateway() as opened:
        assert ask(opened, profile(fake, "local"))
        assert ask(opened, profile(fake, "systemone"))
    assert len(fake.log) == 2


# How often ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call_class", "most"), [("read", 4), ("flush", 3), ("consolidation", 3)])
def test_each_class_has_its_attempts(fake: Provider, call_class: Any, most: int) -> None:
    fake.always(Step(status=503))
    with gateway() as opened:
        assert outcome(lambda: ask(opened, profile(fake), call_class)) == "ModelUnavailable"
    assert len(fake.log) == most


@pytest.mark.parametrize("call_class", ["read", "flush", "consolidation"])
@pytest.mark.parametrize("most", [1, 2, 9])
def test_max_attempts_replaces_every_classs(fake: Provider, call_class: Any, most: int) -> None:
    fake.always(Step(status=503))
    with gateway() as opened:
        assert outcome(lambda: ask(opened, profile(fake, maxAttempts=most), call_class)) == "ModelUnavailable"
    assert len(fake.log) == most


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("call_class", ["read", "flush", "consolidation"])
def test_no_failing_call_is_seen_more_often_than_its_attempts_and_five(
    fake: Provider, call_class: Any, seed: int
) -> None:
    """Whatever goes wrong: retries never multiply across layers. Five more only where a 429 named no wait."""
    most = 1 + seed % 4
    faults = {"reset-before": 0.15, "reset-after": 0.1, "cut": 0.1, "429": 0.4, "503": 0.15, "html": 0.1}
    fake.scripted.chaos(seed, faults)
    with gateway() as opened:
        model = profile(fake, maxAttempts=most)
        for _ in range(20):
            before = len(fake.log)
            ended = outcome(lambda: ask(opened, model, call_class))
            seen = fake.log[before:]
            throttled = sum(row.status == 429 for row in seen)
            patient = min(5, throttled) if call_class != "consolidation" else 0
            assert len(seen) <= most + patient, (ended, seen)
            assert ended in ("ok", "ModelUnavailable", "BadReply")
            opened.clock.skip(61)  # another minute's retry budget


# The waits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dice", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_waits_double_and_are_jittered(fake: Provider, dice: float, share: float) -> None:
    fake.always(Step(status=503))
    with gateway(dice=[dice] * 9) as opened:
        outcome(lambda: ask(opened, profile(fake, maxAttempts=9)))
        assert opened.clock.slept == pytest.approx([share * wait for wait in (0.5, 1, 2, 4, 8, 16, 16, 16)])


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after-ms": "2500"}, 2.5),
        ({"retry-after-ms": "2500", "Retry-After": "9"}, 2.5),
        ({"Retry-After": format_datetime(NOON + timedelta(seconds=40), usegmt=True)}, 40),
        ({"retry-after-ms": "5"}, 0.5),
    ],
    ids=["seconds", "milliseconds", "both", "date", "below-the-backoff"],
)
def test_the_endpoints_wait_is_the_least(fake: Provider, status: int, headers: dict[str, str], seconds: float) -> None:
    fake.script([Step(status=status, headers=headers)])
    with gateway() as opened:
        assert ask(opened, profile(fake), "consolidation")
        assert opened.clock.slept == [pytest.approx(seconds, abs=1)]
    assert len(fake.log) == 2


@pytest.mark.parametrize("named", [{"Retry-After": "30"}, {}])
def test_no_wait_begins_that_would_end_beyond_the_deadline(fake: Provider, named: dict[str, str]) -> None:
    fake.always(Step(status=429, headers=named))
    with gateway() as opened:
        began = opened.clock.monotonic()
        with pytest.raises(ModelUnavailable) as failed:
            ask(opened, profile(fake), deadline=began + 20)
        assert failed.value.retry_after == (30 if named else None)
        assert opened.clock.monotonic() < began + 20
    assert len(fake.log) == (1 if named else 4), "unnamed: 2, 4 and 8 s fit into 20 s, 16 more do not"


def test_a_wait_of_more_than_five_minutes_is_not_waited(fake: Provider) -> None:
    fake.script([Step(status=503, headers={"Retry-After": "301"})])
    with gateway() as opened, pytest.raises(ModelUnavailable) as failed:
        ask(opened, profile(fake))
    assert failed.value.retry_after == 301
    assert len(fake.log) == 1


# Throttling -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call_class", ["read", "flush"])
@pytest.mark.parametrize("headers", UNNAMED.values(), ids=UNNAMED)
def test_a_429_that_names_no_wait_is_waited_out_patiently(
    fake: Provider, call_class: Any, headers: dict[str, str]
) -> None:
    fake.script([Step(status=429, headers=headers)] * 4)
    with gateway() as opened:
        assert ask(opened, profile(fake, maxAttempts=1), call_class), "apart from its attempts: there was only one"
        assert opened.clock.slept == [2, 4, 8, 16]


def test_patient_waits_are_jittered_and_at_most_thirty_seconds_in_all(fake: Provider) -> None:
    fake.always(Step(status=429))
    with gateway(dice=[0.0] * 20) as opened:
        assert outcome(lambda: ask(opened, profile(fake, maxAttempts=1))) == "ModelUnavailable"
        assert opened.clock.slept == pytest.approx([1.5, 3, 6, 12])
    assert len(fake.log) == 5, "30 s admit four of the five"


def test_after_the_patient_waits_it_has_its_attempts_still(fake: Provider) -> None:
    fake.always(Step(status=429))
    with gateway() as opened:
        assert outcome(lambda: ask(opened, profile(fake))) == "ModelUnavailable"
    assert len(fake.log) == 4 + 4


def test_a_patient_wait_is_the_backoff_when_that_is_longer(fake: Provider) -> None:
    """After six other failures the backoff is 16 s, and the first patient wait would be 2 s."""
    fake.script([Step(status=503)] * 6 + [Step(status=429)])
    with gateway() as opened:
        assert ask(opened, profile(fake, maxAttempts=10))
        assert opened.clock.slept[-1] == 16


def test_patient_waits_use_no_attempt(fake: Provider) -> None:
    fake.script([Step(status=503), Step(status=429), Step(status=503), Step(status=429), Step(status=503)])
    with gateway() as opened:
        assert ask(opened, profile(fake))
    assert len(fake.log) == 6


def test_a_429_that_names_its_wait_uses_an_attempt(fake: Provider) -> None:
    fake.always(Step(status=429, headers={"Retry-After": "3"}))
    with gateway() as opened:
        with pytest.raises(ModelUnavailable) as failed:
            ask(opened, profile(fake))
        assert failed.value.retry_after == 3
        assert opened.clock.slept == [3, 3, 3]
        assert set(opened.seen.attempts) == {("jev", "throttled")}, "S14: throttling is shown as what it is"


def test_consolidation_is_not_patient(fake: Provider) -> None:
    fake.always(Step(status=429))
    with gateway() as opened:
        assert outcome(lambda: ask(opened, profile(fake), "consolidation")) == "ModelUnavailable"
        assert opened.clock.slept == [0.5, 1]
    assert len(fake.log) == 3
