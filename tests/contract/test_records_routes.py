"""Records through HTTP: exact bytes, lists, messages, erasure; and the same rows whatever route wrote them (N9, E4, C6)."""

import hashlib
from typing import Any

import httpx

from tests.contract.server import Api

WAIT = {"Prefer": "wait=20"}
RECORDS = "/v1/stores/journal/records"


def write(client: httpx.Client, path: str = "memories", **body: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/stores/journal/{path}", json=body, headers=WAIT)
    assert answer.status_code == 201, answer.text
    return answer.json()


def everything(client: httpx.Client, path: str, limit: int, **more: Any) -> list[dict[str, Any]]:
    items, cursor = [], None
    for _ in range(100):
        page = client.get(path, params={"limit": limit, **more, **({"cursor": cursor} if cursor else {})}).json()
        items += page["items"]
        assert len(page["items"]) <= limit
        cursor = page.get("nextCursor")
        if cursor is None:
            return items
    raise AssertionError("the list has no end")


def test_a_record_is_answered_by_its_exact_bytes(client: httpx.Client, workers: None) -> None:
    text = "Ana’s note:\ttabs, “quotes”, emoji 🚀 and \u202e.\n" * 40
    result = write(client, text=text, id="note-1", source="notes.md", at="2026-03-01T10:30:00+01:00")
    for entry in (result["document"], *result["blocks"]):
        record = client.get(f"{RECORDS}/{entry['id']}")
        assert record.status_code == 200
        assert hashlib.sha256(record.content).hexdigest() == entry["sha256"]
        assert record.headers["etag"] == f'"{entry["sha256"]}"'
        assert record.headers["muniment-revision"] == "1"
        assert record.json()["id"] == entry["id"]
    assert client.get(f"{RECORDS}/note-1").json()["content"] == text
    blocks = [client.get(f"{RECORDS}/{block['id']}").json()["content"] for block in result["blocks"]]
    assert "".join(blocks) == text


def test_a_record_that_the_client_has_is_not_sent_again(client: httpx.Client, workers: None) -> None:
    etag = f'"{write(client, text="x", id="a")["document"]["sha256"]}"'
    for sent in (etag, f'"other", W/{etag}', "*"):
        answer = client.get(f"{RECORDS}/a", headers={"If-None-Match": sent})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert client.get(f"{RECORDS}/a", headers={"If-None-Match": '"other"'}).status_code == 200


def test_past_revisions_stay_readable(client: httpx.Client, workers: None) -> None:
    write(client, text="one", id="a")
    write(client, text="two", id="b")
    assert client.get(f"{RECORDS}/b", params={"revision": 1}).status_code == 404
    assert client.get(f"{RECORDS}/a", params={"revision": 2}).headers["muniment-revision"] == "1"
    assert [item["id"] for item in client.get(RECORDS, params={"revision": 1}).json()["items"]] == ["a", "a-b0000"]


def test_a_list_has_every_record_once_in_write_order(client: httpx.Client, workers: None) -> None:
    for n in range(7):
        write(client, text=f"note {n} " * 100, id=f"n{n}")
    whole = everything(client, RECORDS, 1000)
    assert [item["id"] for item in whole if "document" not in item] == [f"n{n}" for n in range(7)]
    for limit in (1, 2, 3, 5):
        assert everything(client, RECORDS, limit) == whole
    assert {name for item in whole for name in item} <= {
        "id", "kind", "revision", "scope", "workspaceId", "sessionId", "date", "eventAt", "state", "sha256", "bytes",
        "document",
    }  # fmt: skip


def test_pages_skip_nothing_while_others_write(client: httpx.Client, workers: None) -> None:
    for n in range(3):
        write(client, text="x", id=f"n{n}")
    first = client.get(RECORDS, params={"limit": 3}).json()
    write(client, text="x", id="late")
    rest = everything(client, RECORDS, 2)
    ids = [item["id"] for item in first["items"]]
    cursor = first["nextCursor"]
    while cursor:
        page = client.get(RECORDS, params={"limit": 3, "cursor": cursor}).json()
        ids += [item["id"] for item in page["items"]]
        cursor = page.get("nextCursor")
    assert ids == [item["id"] for item in rest]
    assert len(ids) == len(set(ids)) == 8


def test_messages_come_back_verbatim(client: httpx.Client, workers: None) -> None:
    messages = [
        {"role": "user", "content": "  two  spaces\n\n", "at": "2026-03-01T09:30:00+02:00"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "e\u0301 is not \u00e9"},
    ]
    write(client, "conversations", sessionId="s-1", messages=messages, id="talk")
    found = everything(client, f"{RECORDS}/talk/messages", 2)
    assert [{name: value for name, value in entry.items() if name != "ordinal"} for entry in found] == messages
    assert [entry["ordinal"] for entry in found] == [0, 1, 2]
    assert client.get(f"{RECORDS}/none/messages").status_code == 404


def test_every_write_route_makes_the_same_rows(api: Api, client: httpx.Client, tenant: Any, workers: None) -> None:
    note = {
        "text": "The keys are under the mat.",
        "id": "k",
        "source": "s",
        "at": "2020-01-02T03:04:05Z",
        "scope": "daily",
    }
    talk = {"sessionId": "s", "id": "t", "messages": [{"role": "u", "content": "x", "at": "2020-01-02T03:04:05Z"}]}
    for store in ("single", "batched"):
        api.store(tenant, store)
    write_to = "/v1/stores/single/"
    for path, body in (("memories", note), ("conversations", talk)):
        assert client.post(write_to + path, json=body, headers=WAIT).status_code == 201
    batch = client.post("/v1/stores/batched/memories:batch", json={"items": [note, talk]}, headers=WAIT)
    assert batch.status_code == 201
    one, other = (stored(client, store) for store in ("single", "batched"))
    assert one == other
    assert len(one) == 4


def stored(client: httpx.Client, store: str) -> list[dict[str, Any]]:
    """A store's records without what depends on the moment of the writing: its own time, and hashes over that."""
    records = []
    for entry in everything(client, f"/v1/stores/{store}/records", 100):
        record = client.get(f"/v1/stores/{store}/records/{entry['id']}").json()
        assert record["data"]["eventAt"] == entry["eventAt"] == "2020-01-02T03:04:05.000Z"
        for name in ("createdAt", "updatedAt"):
            record.pop(name, None)
        record["data"].get("parent", {}).pop("sha256", None)
        records.append(record)
    return records


def test_a_batch_answers_item_by_item(client: httpx.Client, workers: None) -> None:
    write(client, text="x", id="taken")
    items = [{"text": "a", "id": "new"}, {"text": "b", "id": "taken"}, {"text": "c"}]
    results = write(client, "memories:batch", items=items)["items"]
    assert results[0]["document"]["id"] == "new"
    assert results[1]["error"]["type"] == "/problems/document-exists"
    assert results[2]["blocks"]


def test_an_id_that_is_taken_is_refused_at_accept(client: httpx.Client, workers: None) -> None:
    write(client, text="x", id="a")
    for taken in ("a", "a-b0000"):
        again = client.post("/v1/stores/journal/memories", json={"text": "y", "id": taken})
        assert (again.status_code, again.json()["detail"]) == (409, "document id already exists")


def test_an_erased_record_is_gone_for_good(client: httpx.Client, workers: None) -> None:
    write(client, text="secret", id="a")
    receipt = client.delete(f"{RECORDS}/a-b0000", headers=WAIT)
    assert receipt.status_code == 200
    assert receipt.json()["erased"] == {"documents": 1, "records": 1, "messages": 0}
    for gone in ("a", "a-b0000"):
        answer = client.get(f"{RECORDS}/{gone}")
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/erased")
        assert "secret" not in answer.text
    assert client.delete(f"{RECORDS}/a").status_code == 410
    assert client.delete(f"{RECORDS}/never").status_code == 404
    assert client.post("/v1/stores/journal/memories", json={"text": "y", "id": "a"}).status_code == 409


def test_a_session_is_erased_and_nothing_else(client: httpx.Client, workers: None) -> None:
    for session in ("s-1", "s-2"):
        write(client, "conversations", sessionId=session, id=f"t-{session}", messages=[{"role": "u", "content": "x"}])
    receipt = client.post("/v1/stores/journal/erasures", json={"sessionId": "s-1"}, headers=WAIT)
    assert receipt.status_code == 200
    assert receipt.json()["erased"]["messages"] == 1
    assert client.get(f"{RECORDS}/t-s-1/messages").status_code == 410
    assert client.get(f"{RECORDS}/t-s-2/messages").status_code == 200
    assert {item["sessionId"] for item in everything(client, RECORDS, 100)} == {"s-2"}


def test_what_does_not_exist(client: httpx.Client) -> None:
    for path in ("records", "records/x", "records/x/messages"):
        for store in ("none", "No%20Name", "journal%00"):
            assert client.get(f"/v1/stores/{store}/{path}").status_code == 404
    assert client.get(f"{RECORDS}/x").status_code == 404
    for path, body in (
        ("memories", {"text": "x"}),
        ("reads", {"question": "x"}),
        ("erasures", {"sessionId": "s"}),
    ):
        answer = client.post(f"/v1/stores/none/{path}", json=body)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
