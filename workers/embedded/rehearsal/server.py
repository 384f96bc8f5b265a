"""The rehearsal models behind the protocols of the real ones, on loopback only."""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import uvicorn
from prometheus_client import CollectorRegistry, Counter, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from core.settings import Settings
from workers.embedded.rehearsal import EMBEDDER, JUDGE, MODELS, WRITER, deciding, embedding, writing

BODY_BYTES = 16 * 1024 * 1024
RELEASED = "2026-11-30"
TOKENS = 2_048
Reply = dict[str, Any]


def application() -> Starlette:
    """Every protocol a route, and what the stack asks its processes."""
    registry = CollectorRegistry()
    replies = Counter("muniment_rehearsal_replies", "Replies of the rehearsal models.", ["model"], registry=registry)
    for name in MODELS:
        replies.labels(name)

    def posted(path: str, model: str, answer: Callable[[Mapping[str, Any], int], Reply]) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await request.body()
            if len(body) > BODY_BYTES:
                return _refusal(413, f"the body is over {BODY_BYTES} bytes")
            try:
                asked = cast("Mapping[str, Any]", json.loads(body))
                if asked["model"] != model:
                    return _refusal(404, f"the only model here is {model}")
                reply = answer(asked, max(1, len(body) // writing.BYTES_A_TOKEN))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                return _refusal(422, f"the request cannot be read: {type(error).__name__}: {error}")
            replies.labels(model).inc()
            return JSONResponse(reply)

        return Route(path, endpoint, methods=["POST"])

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ready\n")

    async def models(_: Request) -> Response:
        return JSONResponse(_models())

    return Starlette(
        routes=[
            posted("/v1/systemone", JUDGE, _decide),
            posted("/v1/chat/completions", WRITER, _complete),
            posted("/v1/embeddings", EMBEDDER, _embed),
            posted("/api/embed", EMBEDDER, _embed_as_ollama),
            Route("/v1/models", models),
            Route("/metrics", metrics),
            Route("/readyz", ready),
        ]
    )


def run_rehearsal(settings: Settings) -> None:
    """Serves until it is told to stop."""
    host, _, port = settings.rehearsal_bind.rpartition(":")
    uvicorn.run(application(), host=host, port=int(port), log_level="warning", access_log=False)


def _decide(asked: Mapping[str, Any], tokens: int) -> Reply:
    questions = cast("Mapping[str, Mapping[str, Any]]", asked["questions"])
    found = deciding.answers(asked["state"], questions)
    return {"model": JUDGE, "answers": found, "usage": {"input_tokens": tokens, "output_tokens": len(found)}}


def _complete(asked: Mapping[str, Any], tokens: int) -> Reply:
    text, cut = writing.cut(writing.reply(writing.read(asked)), int(asked.get("max_tokens") or TOKENS))
    written = max(1, len(text.encode()) // writing.BYTES_A_TOKEN)
    choice = {
        "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length" if cut else "stop",
        "logprobs": None,
    }  # fmt: skip
    usage = {"prompt_tokens": tokens, "completion_tokens": written, "total_tokens": tokens + written}
    return {
        "id": "rehearsal", "object": "chat.completion", "created": 0, "model": WRITER, "choices": [choice], "usage": usage,
    }  # fmt: skip


def _embed(asked: Mapping[str, Any], tokens: int) -> Reply:
    rows = embedding.vectors(_texts(asked), int(asked.get("dimensions") or embedding.DIMENSIONS))
    return {
        "object": "list", "model": EMBEDDER, "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "data": [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)],
    }  # fmt: skip


def _embed_as_ollama(asked: Mapping[str, Any], tokens: int) -> Reply:
    return {"model": EMBEDDER, "embeddings": embedding.vectors(_texts(asked)), "prompt_eval_count": tokens}


def _texts(asked: Mapping[str, Any]) -> list[str]:
    given: object = asked["input"]
    return [given] if isinstance(given, str) else list(cast("list[str]", given))


def _models() -> Reply:
    """Both protocols ask at this path; each client reads its own part."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "muniment"} for name in MODELS],
        "models": [
            {"name": name, "description": said, "release_date": RELEASED} for name, said in MODELS.items()
        ],
    }  # fmt: skip


def _refusal(status: int, text: str) -> Response:
    """In the words of both protocols."""
    return JSONResponse({"detail": text, "error": {"message": text, "type": "invalid_request_error"}}, status)
