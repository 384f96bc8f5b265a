"""Embedding: text in, one L2-normalised float32 vector a text out (memory-agent.md §3).

A *profile* says where vectors come from; an `Embedder` is a profile at work. A batch that cannot be trusted as a whole is
refused as a whole: a vector is never paired with another text (failure-cases.md M14).
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.errors import JobFailed, Unavailable
from core.jsontext import canonical, sha256_hex
from core.models import builtin
from core.models.model import Call

Vectors: TypeAlias = NDArray[np.float32]
Purpose = Literal["query", "document"]

BATCH = 64
"""The most texts of one request."""
QUERIES = 256
"""Query vectors kept; the oldest goes first."""


class EmbeddingUnavailable(Unavailable):
    """The embedder cannot be reached, or is too busy: the same call may succeed later. `retry_after` is its own wish."""


class EmbeddingRefused(JobFailed):
    """The embedder is set up wrong: no other try will do better."""


class BadReply(EmbeddingRefused):
    """The reply cannot be trusted, so nothing of it was used. Another try may bring a better one."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Profile:
    """An embedding profile (contract.md, Store configuration). `dimensions` None: whatever the model gives; `key_env`: the
    variable that holds the key."""

    kind: Literal["builtin", "ollama", "openai"] = "builtin"
    url: str = ""
    model: str = ""
    key_env: str = ""
    dimensions: int | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    name: str = "builtin"

    @property
    def space(self) -> bytes:
        """32 bytes that name the vectors of documents: equal spaces can be compared and shared, whatever the URL."""
        model = builtin.MODEL if self.kind == "builtin" else self.model
        named = {"kind": self.kind, "model": model, "dimensions": self.dimensions, "prefix": self.document_prefix}
        return bytes.fromhex(sha256_hex(canonical({name: value for name, value in named.items() if value is not None})))


BUILTIN = Profile(dimensions=builtin.DIMENSIONS)


class Provider(Protocol):
    """What embeds at most `BATCH` clean, prefixed texts in one call.

    Raises EmbeddingUnavailable, EmbeddingRefused, BadReply."""

    def embed(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors: ...


class Embedder:
    """A profile at work; for any number of threads."""

    def __init__(self, profile: Profile, provider: Provider) -> None:
        self.profile = profile
        self._provider = provider
        self._queries: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
        """One row a text, in order: L2-normalised, a zero vector as it is. At most ceil(n / 64) requests.

        Raises EmbeddingUnavailable, EmbeddingRefused, BadReply."""
        prefix = self.profile.query_prefix if purpose == "query" else self.profile.document_prefix
        ready = [prefix + clean(text) for text in texts]
        parts = [self._batch(ready[start : start + BATCH], purpose, call) for start in range(0, len(ready), BATCH)]
        if len({part.shape[1] for part in parts}) > 1:
            raise BadReply("the embedder changed the length of its vectors from one batch to the next")
        return np.concatenate(parts) if parts else np.empty((0, self.profile.dimensions or 0), np.float32)

    def query(self, text: str, call: Call) -> Vectors:
        """The vector of one query, from the cache when it was asked before. The caller must not change it."""
        with self._lock:
            known = self._queries.get(text)
            if known is not None:
                self._queries.move_to_end(text)
                return known
        vector = self.embed([text], "query", call)[0]
        vector.setflags(write=False)
        with self._lock:
            self._queries[text] = vector
            while len(self._queries) > QUERIES:
                self._queries.popitem(last=False)
        return vector

    def _batch(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
        vectors = self._provider.embed(texts, purpose, call)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise BadReply(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
        wanted = self.profile.dimensions
        if wanted is not None and vectors.shape[1] != wanted:
            raise EmbeddingRefused(
                f"the embedder's vectors have {vectors.shape[1]} dimensions, the profile says {wanted}: "
                "set the profile's dimensions to what the model gives"
            )
        if not np.isfinite(vectors).all():
            raise BadReply("the embedder gave a vector with a value that is no finite number")
        return normalised(vectors)


def clean(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD: no tokeniser and no JSON encoder takes one (O9, S29)."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def normalised(vectors: NDArray[Any]) -> Vectors:
    """Rows of length 1; a zero row stays as it is."""
    rows = np.asarray(vectors, np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    return np.ascontiguousarray(rows / np.where(norms == 0, 1.0, norms), np.float32)


def text_of(record: Mapping[str, Any]) -> str:
    """What of a record is embedded: its content, or its title when that is empty (memory-agent.md §1.1)."""
    return str(record["content"] or record["title"])
