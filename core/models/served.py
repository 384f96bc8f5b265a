"""What embedding servers are asked and answer: Ollama's `/api/embed`, OpenAI's `/v1/embeddings`, and their like."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from core.models.embedding import Profile, Vectors
from core.models.model import BadReply
from core.models.replies import MOST_TOKENS, Tokens


def address(profile: Profile) -> str:
    return profile.url.rstrip("/") + ("/api/embed" if profile.kind == "ollama" else "/v1/embeddings")


def body(profile: Profile, texts: Sequence[str]) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": profile.model, "input": list(texts)}
    if profile.kind == "ollama":
        asked["truncate"] = True
    elif profile.dimensions is not None:
        asked["dimensions"] = profile.dimensions
    return asked


def vectors(profile: Profile, reply: Mapping[str, Any], count: int) -> Vectors:
    """One row a text, in order. Raises BadReply: nothing of a batch that cannot be trusted is used (failure-cases.md M14)."""
    rows = _ollama_rows(reply) if profile.kind == "ollama" else _openai_rows(reply, count)
    if len(rows) != count:
        raise BadReply(f"the embedding server gave {len(rows)} vectors for {count} texts")
    try:
        found = np.asarray(rows, np.float32)
    except (ValueError, TypeError, OverflowError):
        found = np.empty((0, 0), np.float32)
    if found.ndim != 2 or not found.size:
        raise BadReply("the embedding server's vectors are not lists of numbers of one length")
    return found


def tokens(reply: Mapping[str, Any]) -> Tokens:
    """What the server counted, if it counted: embeddings are unpaid."""
    usage: object = reply.get("usage")
    fields = cast("dict[str, Any]", usage) if isinstance(usage, dict) else reply
    count: object = fields.get("prompt_tokens", fields.get("prompt_eval_count"))
    return Tokens(count if type(count) is int and 0 <= count <= MOST_TOKENS else 0, 0)


def _ollama_rows(reply: Mapping[str, Any]) -> list[Any]:
    rows: object = reply.get("embeddings")
    if not isinstance(rows, list):
        raise BadReply("the embedding server's reply has no list `embeddings`")
    return cast("list[Any]", rows)


def _openai_rows(reply: Mapping[str, Any], count: int) -> list[Any]:
    """Each entry says which text it belongs to; one that is missing, doubled or out of range spoils the batch."""
    data: object = reply.get("data")
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
