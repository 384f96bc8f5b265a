"""The Redis channels besides Dramatiq's: answers to waiting API processes, and nudges to the relay. All may be lost."""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import redis

from core.jobs.model import Ending
from workers.roundtrip import round_trip

_log = logging.getLogger(__name__)

RELAY = "muniment:relay"
"""Says: rows of the queue named in the message are ready and unsent; `*` means any queue."""
EVERY = "*"
ANSWER_BYTES = 8_192
"""A larger answer is read from the job's row, which stays the truth in any case."""
LISTEN_SECONDS = 1.0
UNANSWERED = 5
"""After so many pings without an answer the connection counts as lost. The client (workers/broker.py) pings each time it has
heard nothing for LISTEN_SECONDS, once 15 s were quiet: so within about 21 s."""


def answer_channel(waiter: str) -> str:
    """The channel of one API process; `waiter` is what it wrote on the job's row."""
    return f"muniment:answer:{waiter}"


def answers(endings: Sequence[Ending]) -> list[tuple[str, str]]:
    """(channel, message) for every ending somebody waits for."""
    return [(answer_channel(ending.waiter), _message(ending)) for ending in endings if ending.waiter]


def publish(client: redis.Redis, messages: Sequence[tuple[str, str]]) -> None:
    """One round trip for all. Raises redis.RedisError; whoever waits polls the row as well."""
    if messages:
        round_trip(client, [("PUBLISH", channel, message) for channel, message in messages])


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


class Ear(threading.Thread):
    """Hears nudges; after a lost connection it subscribes again. What it misses, the poll finds."""

    def __init__(self, client: redis.Redis, heard: Callable[[str], None]) -> None:
        super().__init__(name="relay-ear", daemon=True)
        self._client: Any = client
        self._heard = heard
        self._hears = True
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join(timeout=5)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except redis.RedisError as error:
                if self._hears:  # said once an outage
                    _log.warning("nudges are not heard, only polled for: %s: %s", type(error).__name__, error)
                self._hears = False
                self._stopping.wait(1.0)

    def _listen(self) -> None:
        with self._client.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(RELAY)
            if not self._hears:
                _log.warning("nudges are heard again")
            self._hears = True
            while not self._stopping.is_set():
                message = channel.get_message(timeout=LISTEN_SECONDS)
                if message is not None:
                    self._heard(message["data"].decode("utf-8", "replace"))
                elif channel.health_check_response_counter > UNANSWERED:
                    # Half open: nobody is there any more, and no packet will ever say so.
                    raise redis.ConnectionError("the server no longer answers")
