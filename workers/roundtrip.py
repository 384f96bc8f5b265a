"""Redis commands in one round trip, without what redis-py's pipeline does beside it: that costs as much as the calls."""

from collections.abc import Sequence
from typing import Any

import redis

Command = tuple[Any, ...]


def round_trip(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """The replies, in order. A lost connection is retried as the client says. Raises redis.RedisError: the first among the
    replies once all were read; the other commands have run then."""
    pool: Any = client.connection_pool
    connection = pool.get_connection()

    def lost(_: Exception) -> None:
        connection.disconnect()

    try:
        replies = connection.retry.call_with_retry(lambda: _ask(connection, commands), lost)
    except BaseException:
        connection.disconnect()  # an interrupt may come between two replies: what is left would be another's answer
        raise
    finally:
        pool.release(connection)
    for reply in replies:
        if isinstance(reply, redis.ResponseError):
            raise reply
    return replies


def _ask(connection: Any, commands: Sequence[Command]) -> list[Any]:
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except redis.ResponseError as error:
            replies.append(error)
    return replies
