"""The official clients work against the fake provider: it is not our own idea of the protocols.

And it does what its scripts say: each fault, as the clients see it.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import typesafe_sdk as jev
from openai.types.chat import ChatCompletion

from tests.fakes.fleet import ROOT, until
from tests.fakes.provider import Provider, Step, provider
from tests.fakes.provider.replies import DIMENSIONS

KEY = "a-key"
MESSAGES = [{"role": "user", "content": "Where does the owl live?"}]
ERRORS = {
    400: ("TypeSafeBadRequestError", "BadRequestError"),
    401: ("TypeSafeAuthenticationError", "AuthenticationError"),
    402: ("TypeSafeAPIError", "APIStatusError"),
    403: ("TypeSafePermissionDeniedError", "PermissionDeniedError"),
    404: ("TypeSafeNotFoundError", "NotFoundError"),
    408: ("TypeSafeAPIError", "APIStatusError"),
    422: ("TypeSafeUnprocessableEntityError", "UnprocessableEntityError"),
    425: ("TypeSafeAPIError", "APIStatusError"),
    429: ("TypeSafeRateLimitError", "RateLimitError"),
    500: ("TypeSafeInternalServerError", "InternalServerError"),
    503: ("TypeSafeInternalServerError", "InternalServerError"),
    524: ("TypeSafeInternalServerError", "InternalServerError"),
    529: ("TypeSafeInternalServerError", "InternalServerError"),
}


@pytest.fixture
def fake() -> Iterator[Provider]:
    with provider(keys=[KEY]) as running:
        yield running


@pytest.fixture
def typesafe(fake: Provider) -> Iterator[jev.TypeSafeClient]:
    retry = jev.RetryPolicy(max_retries=0)
    with jev.TypeSafeClient(api_key=KEY, base_url=fake.url, retry=retry, timeout=2, model="jev-1.13.0") as client:
        yield client


@pytest.fixture
def chat(fake: Provider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=KEY, base_url=f"{fake.url}/v1", max_retries=0, timeout=2) as client:
        yield client


def ask(client: openai.OpenAI, **more: Any) -> ChatCompletion:
    reply: ChatCompletion = client.chat.completions.create(model="gpt-4.1-mini", messages=MESSAGES, **more)  # pyright: ignore
    return reply


def decide(client: jev.TypeSafeClient) -> jev.SystemOneResponse:
    return client.system_one(
        state={"messages": ["The owl lives in the mill."]},
        questions={
            "needed": jev.Noul(instructions="Is it about an owl?", criteria={"true": "it is", "false": "it is not"}),
            "where": jev.Choice(instructions="Where?", criteria={"mill": "in a mill", "barn": None}),
            "how": jev.Score(instructions="How sure?", criteria=["not at all", "a little", "wholly"]),
        },
    )


def test_the_typesafe_client_reads_decisions(fake: Provider, typesafe: jev.TypeSafeClient) -> None:
    reply = decide(typesafe)
    assert reply.model == "jev-1.13.0"
    assert 0 <= reply.nouls["needed"].noul <= 1
    where = reply.choices["where"]
    assert where.choice == max(where.probabilities, key=lambda label: where.probabilities[label])
    assert set(where.probabilities) == {"mill", "barn"}
    how = reply.scores["how"]
    assert sum(how.probabilities.values()) == pytest.approx(1)
    assert how.score == pytest.approx(sum(int(level) * chance for level, chance in how.probabilities.items()))
    row = fake.log[0]
    assert (row.path, row.outcome, row.sent, row.status) == ("/v1/systemone", "sent", True, 200)
    assert row.input_tokens == reply.usage.input_tokens
    assert row.cost_nanos == 42 * row.input_tokens
    assert row.json["model"] == "jev-1.13.0"


def test_both_clients_list_the_models(typesafe: jev.TypeSafeClient, chat: openai.OpenAI) -> None:
    assert "jev-1.13.0" in [model.name for model in typesafe.models.list().models]
    assert "gpt-4.1-mini" in [model.id for model in chat.models.list()]


def test_the_openai_client_completes(fake: Provider, chat: openai.OpenAI) -> None:
    reply = ask(chat)
    assert reply.choices[0].message.content == "You said: Where does the owl live?"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    row = fake.log[0]
    assert row.cost_nanos == 400 * reply.usage.prompt_tokens + 1600 * reply.usage.completion_tokens > 0


def test_json_mode_answers_json_and_a_cut_answer_says_so(fake: Provider, chat: openai.OpenAI) -> None:
    reply = ask(chat, response_format={"type": "json_object"})
    assert json.loads(reply.choices[0].message.content or "") == {"echo": MESSAGES[0]["content"]}
    fake.script([Step(finish="length", content='{"half', reasoning=30)])
    cut = ask(chat)
    assert (cut.choices[0].finish_reason, cut.choices[0].message.content) == ("length", '{"half')
    assert cut.usage is not None
    assert cut.usage.completion_tokens_details is not None
    assert cut.usage.completion_tokens_details.reasoning_tokens == 30
    assert cut.usage.completion_tokens > 30


@pytest.mark.parametrize("encoding", ["float", openai.omit], ids=["float", "the client's own base64"])
def test_the_openai_client_embeds(fake: Provider, chat: openai.OpenAI, encoding: Any) -> None:
    made = chat.embeddings.create(model="text-embedding-3-small", input=["a", "b"], encoding_format=encoding)
    assert [entry.index for entry in made.data] == [0, 1]
    assert {len(entry.embedding) for entry in made.data} == {DIMENSIONS}
    assert made.data[0].embedding != made.data[1].embedding
    assert fake.log[0].cost_nanos == 20 * made.usage.prompt_tokens


def test_ollama_embeds(fake: Provider) -> None:
    body = {"model": "nomic", "input": ["a", "b"]}
    reply = httpx.post(f"{fake.url}/api/embed", json=body, headers={"Authorization": f"Bearer {KEY}"}).json()
    assert [len(row) for row in reply["embeddings"]] == [DIMENSIONS, DIMENSIONS]


@pytest.mark.parametrize("status", ERRORS)
def test_each_refusal_is_the_clients_own_error(
    fake: Provider, typesafe: jev.TypeSafeClient, chat: openai.OpenAI, status: int
) -> None:
    fake.script([Step(status=status), Step(status=status)])
    with pytest.raises(getattr(jev, ERRORS[status][0], jev.TypeSafeError)) as refused:
        decide(typesafe)
    assert type(refused.value).__name__ == ERRORS[status][0]
    assert f"scripted {status}" in str(refused.value)
    with pytest.raises(openai.APIStatusError) as failed:
        ask(chat)
    assert type(failed.value).__name__ == ERRORS[status][1]
    assert failed.value.status_code == status
    assert [(row.outcome, row.cost_nanos, row.sent) for row in fake.log] == [("refused", 0, False)] * 2


def test_a_wrong_key_is_refused_and_its_echo_is_scripted(fake: Provider) -> None:
    fake.script([Step(echo=True)])
    client = openai.OpenAI(api_key="canary", base_url=f"{fake.url}/v1", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError, match="canary"):
        ask(client)


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({}, None),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "7"}, 7000),
        ({"retry-after-ms": "250"}, 250),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Thu, 01 Jan 2015 00:00:00 GMT"}, 0),
        ({"Retry-After": "in 100 s"}, 99_500),
    ],
)
def test_every_kind_of_retry_after_reaches_the_client(
    fake: Provider, typesafe: jev.TypeSafeClient, headers: dict[str, str], wait_ms: float | None
) -> None:
    date = formatdate(time.time() + 100, usegmt=True)
    fake.script([Step(status=429, headers={name: value.replace("in 100 s", date) for name, value in headers.items()})])
    with pytest.raises(jev.TypeSafeRateLimitError) as refused:
        decide(typesafe)
    found = refused.value.retry_after_ms
    assert found == wait_ms if not wait_ms else found == pytest.approx(wait_ms, rel=0.02)


@pytest.mark.parametrize("field", ["usage", "model"])
def test_a_reply_without_a_field_is_not_taken(fake: Provider, typesafe: jev.TypeSafeClient, field: str) -> None:
    fake.script([Step(patch={field: None})])
    with pytest.raises(jev.TypeSafeAPIResponseValidationError, match=field):
        decide(typesafe)
    assert fake.log[0].outcome == ("unmetered" if field == "usage" else "sent")


def test_missing_probabilities_are_not_taken(fake: Provider, typesafe: jev.TypeSafeClient) -> None:
    fake.script([Step(patch={"answers": {"where": {"probabilities": None}}})])
    with pytest.raises(jev.TypeSafeAPIResponseValidationError, match="probabilities"):
        decide(typesafe)


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (Step(reset="before"), "reset"),
        (Step(reset="after"), "reset"),
        (Step(cut=True), "cut"),
        (Step(delay=30), "gone"),
        (Step(stall=30), "gone"),
        (Step(drip=0.5), "gone"),
    ],
    ids=["reset-before", "reset-after", "cut", "delay", "stall", "drip"],
)
def test_a_broken_connection_is_one_to_the_client(fake: Provider, step: Step, outcome: str) -> None:
    fake.script([step])
    patient = httpx.Client(timeout=0.3, headers={"Authorization": f"Bearer {KEY}"})
    with patient as client, pytest.raises(httpx.TransportError):
        whole(client, f"{fake.url}/v1/systemone")
    until(lambda: fake.log[0].outcome == outcome, 3, lambda: fake.log[0])
    assert not fake.log[0].sent
    assert fake.log[0].body_sha256 == "" if step.reset == "before" else fake.log[0].cost_nanos > 0


def whole(client: httpx.Client, url: str) -> None:
    """Reads a long reply, for at most 0.4 s."""
    body = {"model": "jev-1.13.0", "state": "s" * 20_000, "questions": {"q": {"type": "noul"}}}
    began = time.monotonic()
    with client.stream("POST", url, json=body) as response:
        for _ in response.iter_raw(64):
            if time.monotonic() - began > 0.4:
                raise httpx.ReadTimeout("too long")


def test_a_drip_arrives_whole_in_the_end(fake: Provider, chat: openai.OpenAI) -> None:
    fake.script([Step(drip=0.01)])
    began = time.monotonic()
    assert ask(chat)
    assert time.monotonic() - began > 0.09


def test_down_is_refused_deaf_times_out_and_both_end(fake: Provider) -> None:
    address = ("127.0.0.1", int(fake.url.rpartition(":")[2]))
    fake.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 1)
    fake.ignore()
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 0.3)
    fake.listen()
    socket.create_connection(address, 1).close()


def test_steps_by_a_mark_go_to_the_requests_that_bear_it(fake: Provider, chat: openai.OpenAI) -> None:
    fake.script([Step(content="for the second")], match="second")
    assert ask(chat) != ask(chat, user="second")
    last = ask(chat, user="second")
    assert last.choices[0].message.content == "You said: Where does the owl live?"
    assert fake.scripted.left == 0


def test_as_a_process_it_writes_its_log_and_its_faults_repeat(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        json.dumps({"chaos": {"seed": 7, "chances": {"500": 0.3, "html": 0.2}}, "prices": {"own": [3, 5]}})
    )
    runs = [once(tmp_path / str(run), script) for run in range(2)]
    statuses = [(row["status"], row["outcome"]) for row in runs[0]]
    assert statuses == [(row["status"], row["outcome"]) for row in runs[1]]
    assert set(statuses) == {(200, "sent"), (200, "unmetered"), (500, "refused")}
    sent = next(row for row in runs[0] if row["sent"])
    assert sent["cost_nanos"] == 3 * sent["input_tokens"] + 5 * sent["output_tokens"]
    assert sent["client_id"] == "mine"
    assert KEY not in json.dumps(runs)


def once(folder: Path, script: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    port, log = folder / "port", folder / "log"
    arguments = ["--port-file", str(port), "--log", str(log), "--script", str(script)]
    process = subprocess.Popen([sys.executable, "-m", "tests.fakes.provider", *arguments], cwd=ROOT)
    try:
        until(port.exists, 20)
        with httpx.Client(headers={"Authorization": f"Bearer {KEY}", "X-Client-Request-Id": "mine"}) as client:
            for _ in range(20):
                url = f"http://127.0.0.1:{port.read_text()}/v1/chat/completions"
                client.post(url, json={"model": "own", "messages": MESSAGES})
    finally:
        process.terminate()
        process.wait(10)
    return [json.loads(line) for line in log.read_text().splitlines()]
