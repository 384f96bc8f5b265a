"""How long calls to an embedding server may last (decisions.md, Models): someone waits for a query, a job for a batch."""

import threading
from collections.abc import Iterator

import pytest

from core.errors import DeadlineExceeded
from core.models.embedding import EmbeddingUnavailable, Profile
from tests.fakes.attempting import gateway
from tests.fakes.models import call
from tests.fakes.provider import Provider, Step, provider


@pytest.fixture
def fake() -> Iterator[Provider]:
    with provider() as running:
        yield running


def served(fake: Provider) -> Profile:
    return Profile(name="e", kind="openai", url=fake.url, model="m")


@pytest.mark.parametrize("purpose", ["query", "document"])
def test_a_throttled_server_is_asked_once_and_not_waited_out(fake: Provider, purpose: str) -> None:
    fake.always(Step(status=429))
    with gateway() as opened:
        with pytest.raises(EmbeddingUnavailable):
            opened.gateway.embed(served(fake), ["x"], "query" if purpose == "query" else "document", call("read"))
        assert opened.clock.slept == []
    assert len(fake.log) == 1


class Full:
    """No place in flight; says until when one was waited for."""

    def __init__(self) -> None:
        self.deadlines: list[float | None] = []

    def slot(self, provider: str, call_class: str, deadline: float | None, cancelled: object) -> "Full":
        del provider, call_class, cancelled
        self.deadlines.append(deadline)
        return self

    def __enter__(self) -> None:
        raise DeadlineExceeded("no place came free")

    def __exit__(self, *_: object) -> None:
        pass


def test_a_query_waits_five_seconds_for_its_place_and_then_goes_without(fake: Provider) -> None:
    full = Full()
    with gateway(slots=full) as opened:
        began = opened.clock.monotonic()
        with pytest.raises(EmbeddingUnavailable):
            opened.gateway.embed(served(fake), ["x"], "query", call("read"))
        with pytest.raises(EmbeddingUnavailable):
            opened.gateway.embed(served(fake), ["x"], "query", call("read", deadline=began + 60))
        with pytest.raises(DeadlineExceeded):
            opened.gateway.embed(served(fake), ["x"], "query", call("read", deadline=began + 2))
        assert full.deadlines == pytest.approx([began + 5, began + 5, began + 2], abs=1)


def test_a_server_that_hangs_is_counted_against_its_circuit(fake: Provider) -> None:
    """The caller has gone by then; the attempt says it by itself."""
    fake.always(Step(delay=600))
    with gateway() as opened:
        told = threading.Event()
        failed = opened.circuits.failed

        def heard(circuit: str) -> None:
            failed(circuit)
            told.set()

        opened.circuits.failed = heard
        with pytest.raises(EmbeddingUnavailable):
            opened.gateway.embed(served(fake), ["x"], "query", call("read"))
        assert told.wait(3)
        fake.refuse()
