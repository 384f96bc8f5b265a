"""The Redis channels besides Dramatiq's: answers to waiting API processes, and nudges to the relay. All may be lost."""

import json
from collections.abc import Sequence
from typing import Any

import redis

from core.jobs.model import Ending

RELAY = "muniment:relay"
"""Says: rows of the queue named in the message are ready and unsent; `*` means any queue."""
EVERY = "*"
ANSWER_BYTES = 8_192
"""A larger answer is read from the job's row, which stays the truth in any case."""


def answer_channel(waiter: str) -> str:
    """The channel of one API process; `waiter` is what it wrote on the job's row."""
    return f"muniment:answer:{waiter}"


def answers(endings: Sequence[Ending]) -> list[tuple[str, str]]:
    """(channel, message) for every ending somebody waits for."""
    return [(answer_channel(ending.waiter), _message(ending)) for ending in endings if ending.waiter]


def publish(client: redis.Redis, messages: Sequence[tuple[str, str]]) -> None:
    """One round trip for all. Raises redis.RedisError; whoever waits polls the row as well."""
    if messages:
        untyped: Any = client
        with untyped.pipeline(transaction=False) as pipe:
            for channel, message in messages:
                pipe.publish(channel, message)
            pipe.execute()


def _message(ending: Ending) -> str:
    message: dict[str, object] = {"job": str(ending.job_id), "state": ending.state}
    if ending.error is not None:
        message["error"] = ending.error
    head = json.dumps(message, separators=(",", ":"))
    if ending.result is None:
        return head
    if len(ending.result) * 4 > ANSWER_BYTES and len(ending.result.encode()) > ANSWER_BYTES:
        return head[:-1] + ',"large":true}'
    return f'{head[:-1]},"result":{ending.result}}}'
