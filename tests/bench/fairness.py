"""One tenant imports 20,000 documents; what another tenant's single writes feel of it."""

import json
import time
from contextlib import ExitStack

from tests.bench.http_client import Connection, request
from tests.bench.report import Bar, Report, Sample, percentile
from tests.bench.stage import Stage, headers

DOCUMENTS = 20_000
IDLE_WRITES = 60
PAUSE_SECONDS = 0.05
GROUPS = ("fast", "bulk")


def run(stage: Stage, report: Report, *, documents: int = DOCUMENTS) -> None:
    stage.clear()
    _, importer = stage.tenant("importer")
    other_id, other = stage.tenant("other")
    write = request(
        "POST",
        "/v1/stores/journal/memories",
        headers=headers(other),
        body=json.dumps({"text": "a short note"}).encode(),
    )
    with ExitStack() as stack:
        port = stack.enter_context(stage.api()).port
        stack.enter_context(stage.relay())
        for group in GROUPS:
            stack.enter_context(stage.worker(group))
        connection = Connection(port)
        stack.callback(connection.close)
        idle = [_accept(connection, write) for _ in range(IDLE_WRITES)]
        job = _start_import(port, importer, archive(documents))
        loaded: list[float] = []
        deadline = time.monotonic() + 300
        while not _ended(stage, job):
            loaded.append(_accept(connection, write))
            if time.monotonic() > deadline:
                raise RuntimeError("the import takes longer than five minutes")
        while _open_writes(stage, other_id):
            if time.monotonic() > deadline:
                raise RuntimeError("the other tenant's writes do not end")
            time.sleep(0.05)
        with stage.admin() as admin:
            rows = admin.execute(
                b"select extract(epoch from started_at - ready_at) * 1000 from jobs where tenant_id = %s order by seq",
                (other_id,),
            ).fetchall()
            written = admin.execute(b"select count(*) from documents where tenant_id <> %s", (other_id,)).fetchone()
    waits = [float(row[0]) for row in rows][IDLE_WRITES:]
    if written is None or written[0] != documents:
        raise RuntimeError(f"{written} of {documents} documents were imported")
    report.samples += [
        Sample("accept, nobody else", "ms", "1 client, 50 ms apart", idle),
        Sample("accept, another tenant imports", "ms", f"{documents:,} documents in an archive", loaded),
        Sample("job wait, another tenant imports", "ms", "ready to claimed, groups fast and bulk", waits),
    ]
    limit = max(2 * percentile(idle, 0.95), 50.0)
    report.bars += [
        Bar("other_tenant_wait_ms", "another tenant's job wait p95", percentile(waits, 0.95), "≤", 100, "ms"),
        Bar("other_tenant_accept_ms", "another tenant's accept p95", percentile(loaded, 0.95), "≤", limit, "ms"),
    ]


def archive(documents: int) -> bytes:
    """A ChatGPT export of that many one-day conversations."""
    return json.dumps([_conversation(n) for n in range(documents)]).encode()


def _conversation(n: int) -> dict[str, object]:
    began = 1_700_000_000 + n * 3_600
    texts = (
        ("user", f"What did we decide about item {n}?"),
        ("assistant", f"Item {n} moves to the green shelf."),
    )
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": ["m0"]}}
    for place, (role, text) in enumerate(texts):
        mapping[f"m{place}"] = {
            "id": f"m{place}",
            "parent": "root" if place == 0 else f"m{place - 1}",
            "children": [f"m{place + 1}"] if place + 1 < len(texts) else [],
            "message": {
                "id": f"{n}-{place}",
                "author": {"role": role},
                "create_time": began + place,
                "content": {"content_type": "text", "parts": [text]},
                "recipient": "all",
                "metadata": {},
            },
        }
    return {
        "id": f"c-{n}",
        "title": f"Item {n}",
        "create_time": began,
        "current_node": f"m{len(texts) - 1}",
        "mapping": mapping,
    }


def _start_import(port: int, secret: str, data: bytes) -> str:
    """Uploads in 8 MiB pieces and starts; answers the job's id."""
    connection = Connection(port)
    try:
        create = json.dumps({"filename": "conversations.json", "size": len(data)}).encode()
        made = _ask(
            connection, request("POST", "/v1/stores/journal/imports", headers=headers(secret), body=create), 201
        )
        address = f"/v1/imports/{made['id']}"
        for start in range(0, len(data), 8 << 20):
            piece = data[start : start + (8 << 20)]
            more = headers(secret, **{"Upload-Offset": str(start)})
            message = request("PATCH", address, headers=more, body=piece)
            message = message.replace(
                b"Content-Type: application/json", b"Content-Type: application/offset+octet-stream", 1
            )
            status, answer, _ = connection.ask(message)
            if status not in (200, 204):
                raise RuntimeError(f"upload: {status}: {answer[:300]!r}")
        started = _ask(connection, request("POST", f"{address}/start", headers=headers(secret)), 202)
        return str(started["id"])
    finally:
        connection.close()


def _ask(connection: Connection, message: bytes, expected: int) -> dict[str, object]:
    status, answer, _ = connection.ask(message)
    if status != expected:
        raise RuntimeError(f"{status}: {answer[:300]!r}")
    return json.loads(answer)


def _accept(connection: Connection, message: bytes) -> float:
    status, answer, latency = connection.ask(message)
    if status != 202:
        raise RuntimeError(f"{status}: {answer[:300]!r}")
    time.sleep(PAUSE_SECONDS)
    return latency


def _ended(stage: Stage, job: str) -> bool:
    with stage.admin() as admin:
        row = admin.execute(b"select state, error from jobs where job_id = %s", (job,)).fetchone()
    if row is not None and row[0] in ("failed", "dead", "cancelled"):
        raise RuntimeError(f"the import ended as {row[0]}: {row[1]}")
    return row is not None and row[0] == "succeeded"


def _open_writes(stage: Stage, tenant_id: object) -> int:
    with stage.admin() as admin:
        row = admin.execute(
            b"select count(*) from jobs where tenant_id = %s and finished_at is null", (tenant_id,)
        ).fetchone()
    return 0 if row is None else int(row[0])
