"""Embedders: batches, prefixes, lengths, and replies that cannot be trusted (failure cases M14, S17, O9, S29, H16)."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.models import builtin
from core.models.embedders import Embedders
from core.models.embedding import (
    BUILTIN,
    QUERIES,
    BadReply,
    Embedder,
    EmbeddingRefused,
    EmbeddingUnavailable,
    Profile,
    Purpose,
    Vectors,
    clean,
    normalised,
    text_of,
)  # fmt: skip
from core.models.model import Call
from tests.fakes.embedding_server import EmbeddingServer, embedding_server, vector
from tests.fakes.models import TENANT, Given, alone, call, embedders_alone

CALL = call()


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@pytest.fixture
def embedders() -> Iterator[Embedders]:
    with embedders_alone(KEY="s3cret") as opened:
        yield opened


def profile(server: EmbeddingServer, kind: Any = "ollama", **more: Any) -> Profile:
    return Profile(kind=kind, url=server.url, model="fake", **more)


def expected(texts: list[str], dimensions: int = 8) -> np.ndarray[Any, Any]:
    rows = np.array([vector(text, dimensions) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["ollama", "openai"])
def test_each_text_gets_its_own_vector_of_length_one(server: EmbeddingServer, embedders: Embedders, kind: str) -> None:
    server.order = "reversed"
    texts = [f"text {n}" for n in range(150)]
    vectors = embedders.of(profile(server, kind)).embed(texts, "document", CALL)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected(texts), rtol=0, atol=1e-6)
    assert [len(body["input"]) for _, body in server.asked] == [64, 64, 22]  # ceil(n / 64), never one call a text


def test_what_each_kind_of_server_is_asked(server: EmbeddingServer, embedders: Embedders) -> None:
    embedders.of(profile(server)).embed(["a"], "document", CALL)
    embedders.of(profile(server, "openai", key_env="KEY", dimensions=8)).embed(["a"], "document", CALL)
    assert server.asked == [
        ("/api/embed", {"model": "fake", "input": ["a"], "truncate": True}),
        ("/v1/embeddings", {"model": "fake", "input": ["a"], "dimensions": 8}),
    ]
    assert "authorization" not in server.headers[0]
    assert server.headers[1]["authorization"] == "Bearer s3cret"


def test_prefixes_by_purpose(server: EmbeddingServer, embedders: Embedders) -> None:
    embedder = embedders.of(profile(server, query_prefix="search_query: ", document_prefix="search_document: "))
    embedder.query("q", CALL)
    embedder.embed(["d"], "document", CALL)
    assert server.texts() == ["search_query: q", "search_document: d"]


def test_lone_surrogates_reach_no_server(server: EmbeddingServer, embedders: Embedders) -> None:
    texts = ["a\ud800b", "\udc00", "👩‍👩‍👧", "e\u0301", "\u202eabc"]
    embedders.of(profile(server)).embed(texts, "document", CALL)
    assert server.texts() == ["a\ufffdb", "\ufffd", *texts[2:]]
    assert clean("\ud83d\ude00") == "😀"  # the halves of one pair belong together


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("429", EmbeddingUnavailable), ("500", EmbeddingUnavailable), ("503", EmbeddingUnavailable),
        ("cut", EmbeddingUnavailable), ("302", EmbeddingRefused), ("401", EmbeddingRefused), ("fewer", BadReply),
        ("garbage", BadReply), ("nan", BadReply), ("ragged", BadReply), ("doubled", BadReply),
    ],
)  # fmt: skip
def test_a_batch_that_fails_is_refused_as_a_whole(
    server: EmbeddingServer, embedders: Embedders, fault: str, error: type[Exception]
) -> None:
    embedder = embedders.of(profile(server, "openai"))
    texts = [f"text {n}" for n in range(100)]
    server.faults = ["ok", fault]  # in the second batch
    with pytest.raises(error) as raised:
        embedder.embed(texts, "document", CALL)
    assert raised.type is error
    assert len(server.asked) == 2  # no redirect was followed, and trying again is not the embedder's business
    np.testing.assert_allclose(embedder.embed(texts, "document", CALL), expected(texts), atol=1e-6)


def test_a_busy_server_says_when_to_come_again(server: EmbeddingServer, embedders: Embedders) -> None:
    server.faults = ["429"]
    with pytest.raises(EmbeddingUnavailable) as raised:
        embedders.of(profile(server)).query("q", CALL)
    assert raised.value.retry_after == 7
    assert raised.value.retryable


def test_a_server_that_is_not_there(embedders: Embedders) -> None:
    with embedding_server() as gone:
        url = gone.url
    with pytest.raises(EmbeddingUnavailable, match="cannot be reached"):
        embedders.of(Profile(kind="openai", url=url, model="fake")).query("q", CALL)


def test_a_server_that_is_silent(server: EmbeddingServer) -> None:
    server.delay = 0.5
    with alone() as opened:
        embedder = Embedders(Given({}), opened.gateway).of(profile(server))
        waiting = threading.Timer(0.1, opened.clock.skip, [5.0])  # as long as a query is waited for
        waiting.start()
        with pytest.raises(EmbeddingUnavailable, match="did not answer in time"):
            embedder.query("q", CALL)
        waiting.join()


def test_dimensions_that_are_not_the_profiles(server: EmbeddingServer, embedders: Embedders) -> None:
    with pytest.raises(EmbeddingRefused, match="have 8 dimensions, the profile says 768: set the profile's dimensions"):
        embedders.of(profile(server, dimensions=768)).query("q", CALL)


def test_dimensions_that_change_between_batches(server: EmbeddingServer, embedders: Embedders) -> None:
    class Changing:
        def embed(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
            server.dimensions += 1
            return embedders.of(profile(server)).embed(texts, purpose, call)

    with pytest.raises(BadReply, match="changed the length"):
        Embedder(profile(server), Changing()).embed(["x"] * 65, "document", CALL)


@pytest.mark.parametrize("dimensions", [1, 384, 768, 1024, 1536, 3072])
def test_any_dimension(server: EmbeddingServer, embedders: Embedders, dimensions: int) -> None:
    server.dimensions = dimensions
    assert embedders.of(profile(server)).query("q", CALL).shape == (dimensions,)


def test_a_zero_vector_stays_zero() -> None:
    rows = normalised(np.array([[0.0, 0.0], [3.0, 4.0], [1e-30, 0.0]]))
    np.testing.assert_allclose(rows, [[0, 0], [0.6, 0.8], [1, 0]])


def test_no_text_is_no_call(server: EmbeddingServer, embedders: Embedders) -> None:
    assert embedders.of(profile(server)).embed([], "document", CALL).shape == (0, 0)
    assert server.asked == []


def test_the_newest_query_vectors_are_kept(server: EmbeddingServer, embedders: Embedders) -> None:
    embedder = embedders.of(profile(server))
    first = embedder.query("query 0", CALL)
    assert embedder.query("query 0", CALL) is first
    for n in range(QUERIES + 1):
        embedder.query(f"query {n}", CALL)
    assert len(server.asked) == QUERIES + 1
    embedder.query("query 0", CALL)  # the oldest is gone
    embedder.query(f"query {QUERIES}", CALL)  # the newest is not
    assert len(server.asked) == QUERIES + 2
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1.0


def test_a_failed_query_is_not_remembered(server: EmbeddingServer, embedders: Embedders) -> None:
    server.faults = ["500"]
    embedder = embedders.of(profile(server))
    with pytest.raises(EmbeddingUnavailable):
        embedder.query("q", CALL)
    np.testing.assert_allclose(embedder.query("q", CALL), expected(["q"])[0], atol=1e-6)


def test_every_request_is_counted(server: EmbeddingServer) -> None:
    with alone() as opened:
        embedder = Embedders(Given({}), opened.gateway).of(profile(server, "openai"))
        server.faults = ["ok", "500"]
        with pytest.raises(EmbeddingUnavailable):
            embedder.embed(["x"] * 70, "document", CALL)
    assert opened.purse.ended == [("counted", "ok", 0), ("counted", "failed", 0)]


def test_spaces_differ_by_what_changes_document_vectors() -> None:
    base = Profile(kind="ollama", url="http://a", model="m")
    assert base.space == Profile(kind="ollama", url="http://b", model="m", query_prefix="q: ", key_env="K").space
    others = [
        Profile(kind="openai", model="m"), Profile(kind="ollama", model="n"),
        Profile(kind="ollama", model="m", document_prefix="d: "), Profile(kind="ollama", model="m", dimensions=8), BUILTIN,
    ]  # fmt: skip
    assert len({base.space, *(other.space for other in others)}) == 6
    assert len(base.space) == 32


def test_an_unknown_profile(embedders: Embedders) -> None:
    with pytest.raises(EmbeddingRefused, match="no embedding profile 'nomic'"):
        embedders.named(TENANT, "nomic")


def test_the_embedded_text_of_a_record() -> None:
    assert text_of({"content": "c", "title": "t"}) == "c"
    assert text_of({"content": "", "title": "t"}) == "t"


# -- the built-in model -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Iterator[Embedder]:
    if not builtin.installed():
        pytest.skip("the extra `embeddings` is not installed")
    with embedders_alone() as embedders:
        yield embedders.named(TENANT, "builtin")


def test_the_built_in_model_knows_meaning_across_languages(model: Embedder) -> None:
    vectors = model.embed(
        ["The cat sleeps on the sofa.", "Die Katze schläft auf dem Sofa.", "Taxes are due."], "document", CALL
    )
    assert vectors.shape == (3, builtin.DIMENSIONS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.7 > vectors[0] @ vectors[2]


def test_the_built_in_model_takes_any_text(model: Embedder) -> None:
    texts = ["", "\ud800", "\0", "👩‍👩‍👧", "x" * 20_000, " \n"]
    vectors = model.embed(texts, "document", CALL)
    assert vectors.shape == (6, builtin.DIMENSIONS)
    assert np.isfinite(vectors).all()


def test_a_text_alone_and_in_a_batch_from_many_threads(model: Embedder) -> None:
    texts = [f"On day {n} we talked about topic {n * n}." for n in range(12)]
    together = model.embed(texts, "document", CALL)
    alone: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n: alone.update({n: model.embed([texts[n]], "document", CALL)[0]}))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose([alone[n] for n in range(12)], together, atol=1e-5)


def test_the_weights_are_read_once(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    model.embed(["x"], "document", CALL)
    monkeypatch.setattr(builtin, "_load", lambda: pytest.fail("loaded again"))
    model.embed(["y"], "document", CALL)


def test_an_absent_model_says_what_to_install(embedders: Embedders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "installed", lambda: False)
    with pytest.raises(EmbeddingRefused, match=r'pip install "muniment\[embeddings\]"'):
        embedders.named(TENANT, "builtin").query("q", CALL)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sp.model").write_bytes(b"other")
    with pytest.raises(builtin.NotInstalled, match="other weights"):
        builtin.check(tmp_path)
