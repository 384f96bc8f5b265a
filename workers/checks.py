"""Redis as `muniment doctor` sees it: reachable, never evicting, its clock right (queue-facts.md C7)."""

from typing import Any

import redis

from core.clock import monotonic, now
from core.doctor.model import OK, SKIPPED, WRONG, Finding
from workers.broker import connect

SECONDS = 3.0


def check_redis(url: str) -> tuple[list[Finding], float | None]:
    """The findings, and the seconds that Redis's clock is ahead of this machine's."""
    client: Any = connect(url, timeout=SECONDS)
    try:
        facts: dict[str, Any] = client.info()
        began, wall = monotonic(), now().timestamp()
        seconds, micros = client.time()
        ahead = seconds + micros / 1e6 - wall - (monotonic() - began) / 2
    except redis.RedisError as error:
        measured = f"{type(error).__name__}: {error}"
        look = "check MUNIMENT_REDIS_URL, and that the server runs; meanwhile nothing is lost, rows are polled"
        return [
            Finding("redis", WRONG, measured, "redis-unreachable", look),
            Finding("eviction", SKIPPED, "Redis cannot be reached"),
        ], None
    finally:
        client.close()
    return [_health(facts), _eviction(facts)], ahead


def _health(facts: dict[str, Any]) -> Finding:
    version = facts.get("valkey_version") or facts.get("redis_version")
    if facts.get("aof_enabled") and facts.get("aof_last_write_status") != "ok":
        measured = f"the last write of the append-only file went {facts.get('aof_last_write_status')}"
        return Finding("redis", WRONG, measured, "redis-persistence-failing", "look at its disk and its log")
    if facts.get("role") != "master":
        return Finding(
            "redis", WRONG, f"the server is a {facts.get('role')}", "redis-replica", "give the primary's address"
        )
    return Finding("redis", OK, f"version {version} answers")


def _eviction(facts: dict[str, Any]) -> Finding:
    policy, evicted = str(facts.get("maxmemory_policy")), int(facts.get("evicted_keys", 0))
    if policy == "noeviction" and evicted == 0:
        return Finding("eviction", OK, "maxmemory-policy is noeviction, and no key was evicted")
    limit = facts.get("maxmemory_human") if facts.get("maxmemory") else "no limit"
    measured = f"maxmemory-policy is {policy} (maxmemory: {limit}), {evicted} keys were evicted since it started"
    look = "set maxmemory-policy noeviction, and give Muniment a Redis of its own, not a cache; then CONFIG RESETSTAT"
    return Finding("eviction", WRONG, measured, "redis-evicting", look)
