"""Embedding servers: Ollama's `/api/embed` and OpenAI's `/v1/embeddings`, and servers that speak like them."""

import json
from collections.abc import Sequence
from typing import Any, cast

import httpx
import numpy as np

from core.clock import monotonic
from core.models.embedding import BadReply, EmbeddingRefused, EmbeddingUnavailable, Profile, Vectors

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""Of silence; a batch on a slow machine takes its time."""
REPLY_SECONDS = 120.0
"""Of a whole reply that trickles in."""
QUERY_SECONDS = 5.0
"""Of a query's silence, and of its whole reply: someone waits, and words alone answer too."""
REPLY_BYTES = 64 * 1024 * 1024
RETRY_AFTER_MOST = 300
_BUSY = frozenset({408, 425, 429})


class Served:
    """One server and model. Keeps connections open; `close` ends them. Redirects are not followed: the key would go along."""

    def __init__(self, profile: Profile, seconds: float | None = None) -> None:
        """`seconds`: for silence and for a whole reply, instead of the usual patience."""
        self._profile = profile
        self._reply_seconds = seconds or REPLY_SECONDS
        silence = seconds or READ_SECONDS
        ollama = profile.kind == "ollama"
        self._address = profile.url.rstrip("/") + ("/api/embed" if ollama else "/v1/embeddings")
        self._client = httpx.Client(
            timeout=httpx.Timeout(silence, connect=min(silence, CONNECT_SECONDS), pool=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            headers={"Authorization": f"Bearer {profile.key}"} if profile.key else {},
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        reply = self._ask(self._body(texts))
        rows = _ollama_rows(reply) if self._profile.kind == "ollama" else _openai_rows(reply, len(texts))
        if len(rows) != len(texts):
            raise BadReply(f"the embedding server gave {len(rows)} vectors for {len(texts)} texts")
        try:
            vectors = np.asarray(rows, np.float32)
        except (ValueError, TypeError, OverflowError):
            vectors = np.empty((0, 0), np.float32)
        if vectors.ndim != 2 or not vectors.size:
            raise BadReply("the embedding server's vectors are not lists of numbers of one length")
        return vectors

    def close(self) -> None:
        self._client.close()

    def _body(self, texts: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._profile.model, "input": list(texts)}
        if self._profile.kind == "ollama":
            body["truncate"] = True
        elif self._profile.dimensions is not None:
            body["dimensions"] = self._profile.dimensions
        return body

    def _ask(self, body: dict[str, Any]) -> Any:
        try:
            with self._client.stream("POST", self._address, json=body) as response:
                if response.status_code // 100 != 2:
                    raise _refusal(response)
                return json.loads(_read(response, self._reply_seconds))
        except httpx.HTTPError as error:
            raise EmbeddingUnavailable(f"the embedding server: {type(error).__name__}: {error}".strip(": ")) from error
        except ValueError as error:
            raise BadReply("the embedding server's reply is not JSON") from error


def _read(response: httpx.Response, seconds: float) -> bytes:
    """The whole body, if it comes within a time and a size."""
    until = monotonic() + seconds
    read = bytearray()
    for part in response.iter_bytes():
        read += part
        if monotonic() > until:
            raise EmbeddingUnavailable(f"the embedding server's reply took over {seconds:.0f} s")
        if len(read) > REPLY_BYTES:
            raise BadReply(f"the embedding server's reply is over {REPLY_BYTES} bytes")
    return bytes(read)


def _refusal(response: httpx.Response) -> EmbeddingUnavailable | EmbeddingRefused:
    """What a status other than 2xx means. The reply's text is left out: it may repeat what was sent."""
    status = response.status_code
    if status in _BUSY or status >= 500:
        wanted = response.headers.get("retry-after", "")
        seconds = min(int(wanted), RETRY_AFTER_MOST) if wanted.isascii() and wanted.isdigit() else None
        return EmbeddingUnavailable(f"the embedding server answered {status}", retry_after=seconds)
    return EmbeddingRefused(f"the embedding server answered {status}: check the profile's url, model and key")


def _ollama_rows(reply: Any) -> list[Any]:
    rows = cast("dict[str, Any]", reply).get("embeddings") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        raise BadReply("the embedding server's reply has no list `embeddings`")
    return cast("list[Any]", rows)


def _openai_rows(reply: Any, count: int) -> list[Any]:
    """Each entry says which text it belongs to; one that is missing, doubled or out of range spoils the batch."""
    data = cast("dict[str, Any]", reply).get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list):
        raise BadReply("the embedding server's reply has no list `data`")
    rows: dict[int, Any] = {}
    for place, entry in enumerate(cast("list[Any]", data)):
        fields: dict[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        index = fields.get("index", place)
        if type(index) is not int or index in rows or not 0 <= index < count:
            raise BadReply("the embedding server's reply does not say which vector belongs to which text")
        rows[index] = fields.get("embedding")
    return [rows[index] for index in sorted(rows)]
