"""The rehearsal models in the embedded stack: official clients, the gateway, and what a person sees."""

import json
import signal
from collections.abc import Iterator

import httpx
import openai
import pytest
import typesafe_sdk as jev

from core.budget.model import Spender
from core.models.model import Call, Completion, Message, ModelRefused, Noul
from core.models.opening import Models
from core.settings import load
from core.store.database import Database
from tests.integration.test_cli_up import up
from tests.services import short_folder
from workers.embedded.firsttenant import first_tenant
from workers.embedded.rehearsal import EMBEDDER, JUDGE, WRITER
from workers.embedded.stack import Stack

STATE = {
    "messages": ["user: Where does the owl live?"],
    "candidates": [
        {"id": "r1", "text": "The owl lives in the mill."},
        {"id": "r2", "text": "Bread rises near the stove."},
    ],
}
ASKED = {name: f"Is record {name} needed to answer the newest message?" for name in ("r1", "r2")}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=(), rehearsal=True) as running:
        yield running


@pytest.fixture
def models(stack: Stack) -> Iterator[tuple[Models, Call]]:
    settings = load({}, database_url=stack.database_url("app"))
    with Database(stack.database_url("relay"), name="test", size=1) as db, db.system() as tx:
        tenant = first_tenant(tx)
    assert tenant is not None
    with Database(stack.database_url("app"), name="test", size=2) as db, Models(settings, db) as running:
        yield running, Call(Spender(tenant.id, None, None, "judge", "read"))


def test_the_typesafe_client_decides_with_it(stack: Stack) -> None:
    with jev.TypeSafeClient(api_key="none", base_url=stack.rehearsal_url, model=JUDGE) as client:
        reply = client.system_one(
            state=STATE, questions={name: jev.Noul(instructions=text) for name, text in ASKED.items()}
        )
        assert (reply.model, [model.name for model in client.models.list().models]) == (
            JUDGE,
            [JUDGE, WRITER, EMBEDDER],
        )
        assert reply.nouls["r1"].noul > 0.5 > reply.nouls["r2"].noul
        with pytest.raises(jev.TypeSafeNotFoundError, match=JUDGE):
            client.system_one(state=STATE, questions={"q": jev.Noul(instructions="?")}, model="jev-1.13.0")


def test_the_openai_client_completes_and_embeds_with_it(stack: Stack) -> None:
    with openai.OpenAI(api_key="none", base_url=f"{stack.rehearsal_url}/v1") as client:
        reply = client.chat.completions.create(
            model=WRITER,
            messages=[{"role": "user", "content": "Where does the owl live?"}],
            response_format={"type": "json_object"},
        )
        assert reply.model == WRITER
        assert json.loads(reply.choices[0].message.content or "") == {"rehearsal": True, "words": ["owl", "live"]}
        made = client.embeddings.create(model=EMBEDDER, input=["owl", "bread"])
        assert made.model == EMBEDDER
        assert [len(entry.embedding) for entry in made.data] == [256, 256]
        with pytest.raises(openai.UnprocessableEntityError, match="cannot be read"):
            client.chat.completions.create(model=WRITER, messages=[])


def test_what_it_cannot_read_is_refused_and_it_goes_on(stack: Stack) -> None:
    for path in ("/v1/systemone", "/v1/chat/completions", "/v1/embeddings", "/api/embed"):
        for body in (b"", b"[]", b'{"model": 7}', b"\xff", b'{"model": "rehearsal-judge", "state": 1, "questions": 2}'):
            reply = httpx.post(stack.rehearsal_url + path, content=body)
            assert reply.status_code in (404, 422), (path, body, reply.text)
    assert httpx.get(f"{stack.rehearsal_url}/readyz").status_code == 200
    assert (
        'muniment_rehearsal_replies_total{model="rehearsal-judge"}' in httpx.get(f"{stack.rehearsal_url}/metrics").text
    )


def test_the_first_tenant_reaches_them_through_the_gateway(models: tuple[Models, Call]) -> None:
    running, call = models
    decided = running.gateway.decide(JUDGE, STATE, {name: Noul(text) for name, text in ASKED.items()}, call)
    assert decided.model == JUDGE
    assert decided.answers["r1"].noul > 0.5 > decided.answers["r2"].noul  # type: ignore[union-attr]
    assert (decided.usage.cost, decided.usage.currency) == (0, "")
    written = running.gateway.complete(WRITER, Completion([Message("user", "Where does the owl live?")]), call)
    assert (written.text, written.model) == ("owl live", WRITER)
    stands_in = running.gateway.decide(WRITER, STATE, {name: Noul(text) for name, text in ASKED.items()}, call)
    assert stands_in.answers == decided.answers
    vectors = running.embedders.named(call.spender.tenant_id, EMBEDDER).embed(["owl", "bread"], "document", call)
    assert vectors.shape == (2, 256)


def test_no_other_tenant_is_granted_them(stack: Stack, models: tuple[Models, Call]) -> None:
    from core.tenants.tenants import create_tenant

    with Database(stack.database_url("relay"), name="test", size=1) as db, db.system() as tx:
        stranger = create_tenant(tx, "stranger").id
    with pytest.raises(ModelRefused, match=JUDGE):
        models[0].gateway.decide(JUDGE, STATE, {"q": Noul("?")}, Call(Spender(stranger, None, None, "judge", "read")))


@pytest.mark.chaos
def test_up_says_that_they_are_rules_and_moves_the_profiles_to_where_they_are() -> None:
    with short_folder() as folder:
        data, output = folder / "data", folder / "output"
        addresses: list[str] = []
        for _ in range(2):
            with up(data, output, "--models", "rehearsal") as process:
                shown = output.read_text()
                assert f"Models         {JUDGE}, {WRITER}, {EMBEDDER}" in shown
                assert "REHEARSAL: rules, no models" in shown
                addresses.append(address(shown))
                assert httpx.get(f"http://{addresses[-1]}/v1/models").json()["data"][0]["id"] == JUDGE
                process.send_signal(signal.SIGINT)
                assert process.wait(40) == 0


def address(shown: str) -> str:
    return next(line.split()[2] for line in shown.splitlines() if line.startswith("rehearsal "))
