"""Bulk writing through `memories:batch`, from the first request to the last item readable."""

import random
import time
from contextlib import ExitStack

from tests.bench.http_client import Connection, request
from tests.bench.report import Bar, Report, Sample
from tests.bench.stage import Stage, body, headers

ITEMS = 20_000
BATCH = 500
STORE = "bulk"
CONFIGURATION = {"index": {"version": 2, "lexical": True}, "embedding": None}
"""Vectors are filled behind the writes and would share the two cores with them."""
WORDS = (
    "the",
    "river",
    "bridge",
    "market",
    "Lisbon",
    "winter",
    "ledger",
    "a",
    "plan",
    "of",
    "green",
    "paper",
    "moved",
    "signs",
)


def run(stage: Stage, report: Report, *, items: int = ITEMS) -> None:
    stage.clear()
    _, secret = stage.tenant("bulk")
    chance = random.Random(7)
    messages = [
        request(
            "POST",
            f"/v1/stores/{STORE}/memories:batch",
            headers=headers(secret),
            body=body({"items": [{"text": text(chance)} for _ in range(BATCH)]}),
        )
        for _ in range(items // BATCH)
    ]
    with ExitStack() as stack:
        port = stack.enter_context(stage.api()).port
        stack.enter_context(stage.relay())
        stack.enter_context(stage.worker("bulk"))
        connection = Connection(port)
        stack.callback(connection.close)
        put = request("PUT", f"/v1/stores/{STORE}", headers=headers(secret), body=body(CONFIGURATION))
        if connection.ask(put)[0] != 201:
            raise RuntimeError("the store cannot be made")
        began = time.monotonic()
        for message in messages:
            status, answer, _ = connection.ask(message)
            if status != 202:
                raise RuntimeError(f"{status}: {answer[:300]!r}")
        while stage.left():
            if time.monotonic() - began > 120:
                raise RuntimeError("bulk writing takes longer than two minutes")
            time.sleep(0.02)
        seconds = time.monotonic() - began
        with stage.admin() as admin:
            row = admin.execute(b"select count(*) from records").fetchone()
        if row is None or row[0] != items:
            raise RuntimeError(f"{row} of {items} blocks are readable")
    rate = items / seconds
    settings = (
        f"{items:,} items of 600 characters, {BATCH} a request, 1 client, group bulk, lexical index on, no embedding"
    )
    report.samples.append(Sample("bulk writing", "items/s", settings, [rate]))
    report.bars.append(Bar("bulk_items_per_s", "items/s, accepted to readable", rate, "≥", 3_000))


def text(chance: random.Random) -> str:
    """600 characters that are one block."""
    return " ".join(chance.choices(WORDS, k=160))[:599].strip().ljust(600, ".")
