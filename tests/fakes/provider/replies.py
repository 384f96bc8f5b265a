"""The ordinary replies of the protocols: System One, chat completions, both kinds of embeddings, lists of models."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.fakes.provider import prices
from tests.fakes.provider.steps import Step

DIMENSIONS = 8
MODELS = ("jev-1.13.0", "deepseek-flash", "gpt-4.1-mini", "gpt-4o-mini", "text-embedding-3-small")
COMPLETIONS = ("/chat/completions", "/v1/chat/completions")


def known(method: str, path: str) -> bool:
    posts = {"/v1/systemone", "/v1/embeddings", "/api/embed", *COMPLETIONS}
    return path == "/v1/models" if method == "GET" else method == "POST" and path in posts


def ordinary(path: str, asked: Mapping[str, Any], step: Step, tokens: tuple[int, int]) -> dict[str, Any]:
    """The reply without a fault. `tokens`: what it says it used."""
    if path == "/v1/models":
        return _models()
    if path == "/v1/systemone":
        return _system_one(asked, tokens)
    if path == "/v1/embeddings":
        return _embeddings(asked, tokens)
    if path == "/api/embed":
        rows = [vector(text, DIMENSIONS) for text in _texts(asked)]
        return {"model": asked["model"], "embeddings": rows, "prompt_eval_count": tokens[0]}
    return _completion(asked, step, tokens)


def text_of(path: str, asked: Mapping[str, Any], step: Step) -> str:
    """What is written, for the count of output tokens."""
    if path == "/v1/systemone":
        return "x" * 8 * len(asked.get("questions", ()))
    if path in COMPLETIONS:
        return _content(asked, step)
    return ""


def refusal(path: str, status: int, text: str) -> dict[str, Any]:
    """The error body of each protocol."""
    if path in {"/v1/systemone", "/v1/models"}:
        if status == 422:
            return {"detail": [{"loc": ["body", "questions"], "msg": text, "type": "value_error"}]}
        return {"detail": text}
    if path == "/api/embed":
        return {"error": text}
    return {"error": {"message": text, "type": "fake_error", "param": None, "code": str(status)}}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    merged: dict[str, Any] = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def vector(text: str, dimensions: int) -> list[float]:
    """A vector of its own for each text, not of length 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return [float(x) for x in np.random.default_rng(seed).normal(size=dimensions).astype(np.float32)]


def _models() -> dict[str, Any]:
    """Both protocols ask at this path; each client reads its own part."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 1_780_000_000, "owned_by": "fake"} for name in MODELS],
        "models": [{"name": name, "description": "a fake", "release_date": "2026-09-15"} for name in MODELS],
    }


def _system_one(asked: Mapping[str, Any], tokens: tuple[int, int]) -> dict[str, Any]:
    state = json.dumps(asked["state"])
    answers = {key: _answer(key, question, state) for key, question in asked["questions"].items()}
    usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    return {"model": asked["model"], "answers": answers, "usage": usage}


def _answer(key: str, question: Mapping[str, Any], state: str) -> dict[str, Any]:
    dice = zlib.crc32(f"{key}\0{state}\0{json.dumps(question)}".encode()) % 1000 / 1000
    if question["type"] == "noul":
        return {"type": "noul", "noul": dice}
    labels = [str(level) for level in range(len(question["criteria"]))]
    if question["type"] == "choice":
        labels = list(question["criteria"])
    rest = (1 - dice) / (len(labels) - 1) if len(labels) > 1 else 0.0
    probabilities = {label: rest for label in labels} | {labels[-1]: dice if len(labels) > 1 else 1.0}
    best = max(labels, key=probabilities.__getitem__)
    common = {"confidence": probabilities[best], "probabilities": probabilities}
    if question["type"] == "choice":
        return {"type": "choice", "choice": best, **common}
    score = sum(int(label) * chance for label, chance in probabilities.items())
    return {"type": "score", "score": score, "legend": dict(zip(labels, question["criteria"], strict=True)), **common}


def _completion(asked: Mapping[str, Any], step: Step, tokens: tuple[int, int]) -> dict[str, Any]:
    message = {"role": "assistant", "content": _content(asked, step)}
    usage: dict[str, Any] = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
        "completion_tokens_details": {"reasoning_tokens": step.reasoning},
    }
    if str(asked["model"]).startswith("deepseek"):
        usage |= {"prompt_cache_hit_tokens": tokens[0] // 2, "prompt_cache_miss_tokens": tokens[0] - tokens[0] // 2}
    return {
        "id": f"chatcmpl-{zlib.crc32(json.dumps(asked).encode()):08x}",
        "object": "chat.completion",
        "created": 1_780_000_000,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": step.finish, "logprobs": None}],
        "usage": usage,
    }


def _content(asked: Mapping[str, Any], step: Step) -> str:
    if step.content is not None:
        return step.content
    last = asked["messages"][-1]["content"]
    if asked.get("response_format", {}).get("type") == "json_object":
        return json.dumps({"echo": last[:80]})
    return f"You said: {last[:80]}"


def _embeddings(asked: Mapping[str, Any], tokens: tuple[int, int]) -> dict[str, Any]:
    dimensions = asked.get("dimensions", DIMENSIONS)
    rows: list[Any] = [vector(text, dimensions) for text in _texts(asked)]
    if asked.get("encoding_format") == "base64":
        import base64

        rows = [base64.b64encode(np.asarray(row, "<f4").tobytes()).decode() for row in rows]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)],
        "model": asked["model"],
        "usage": {"prompt_tokens": tokens[0], "total_tokens": tokens[0]},
    }


def _texts(asked: Mapping[str, Any]) -> list[str]:
    given = asked["input"]
    return [given] if isinstance(given, str) else list(given)


def used(path: str, asked: Mapping[str, Any], body: bytes, step: Step) -> tuple[int, int]:
    """Input and output tokens of a request."""
    if step.usage is not None:
        return step.usage
    if path == "/v1/models":
        return 0, 0
    text = text_of(path, asked, step)
    return prices.input_tokens(body), (prices.output_tokens(text) if text else 0) + step.reasoning
