"""Every field's limit gives 422 naming the field, and too much of anything 413 (S29, S41, C1)."""

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx

from core.ids import uuid7
from core.records import limits
from tests.contract.server import Api

WRITE = "/v1/stores/journal/memories"
CONVERSATION = "/v1/stores/journal/conversations"
BATCH = "/v1/stores/journal/memories:batch"
READ = "/v1/stores/journal/reads"
ERASE = "/v1/stores/journal/erasures"

TALK = {"sessionId": "s", "messages": [{"role": "user", "content": "x"}]}
LONG = "a" * 201

# (route, body, the field that is named)
REFUSED: list[tuple[str, Any, str]] = [
    (WRITE, {}, "text"),
    (WRITE, {"text": ""}, "text"),
    (WRITE, {"text": None}, "text"),
    (WRITE, {"text": {"a": 1}}, "text"),
    (WRITE, {"text": ["x"]}, "text"),
    (WRITE, {"text": 7}, "text"),
    (WRITE, {"text": "a\u0000b"}, "text"),
    (WRITE, {"text": "x", "id": "a_b"}, "id"),
    (WRITE, {"text": "x", "id": ""}, "id"),
    (WRITE, {"text": "x", "id": "a" * 91}, "id"),
    (WRITE, {"text": "x", "source": LONG}, "source"),
    (WRITE, {"text": "x", "source": "\u0000"}, "source"),
    (WRITE, {"text": "x", "at": "yesterday"}, "at"),
    (WRITE, {"text": "x", "at": "2026-03-01T09:30:00"}, "at"),
    (WRITE, {"text": "x", "at": 1700000000}, "at"),
    (WRITE, {"text": "x", "scope": "team"}, "scope"),
    (WRITE, {"text": "x", "scope": "project"}, "workspaceId"),
    (WRITE, {"text": "x", "scope": "session"}, "sessionId"),
    (WRITE, {"text": "x", "workspaceId": ""}, "workspaceId"),
    (WRITE, {"text": "x", "workspaceId": LONG}, "workspaceId"),
    (WRITE, {"text": "x", "workspaceId": "a\nb"}, "workspaceId"),
    (WRITE, {"text": "x", "sessionId": LONG}, "sessionId"),
    (WRITE, {"text": "x", "session_id": "s"}, "session_id"),
    (WRITE, {"text": "x", "tenant": "other"}, "tenant"),
    (WRITE, [], "body"),
    (WRITE, "text", "body"),
    (WRITE, None, "body"),
    (CONVERSATION, {"messages": TALK["messages"]}, "sessionId"),
    (CONVERSATION, {**TALK, "sessionId": LONG}, "sessionId"),
    (CONVERSATION, {**TALK, "messages": []}, "messages"),
    (CONVERSATION, {**TALK, "messages": [{"role": "u", "content": "x"}] * 10_001}, "messages"),
    (CONVERSATION, {**TALK, "messages": [{"role": "", "content": "x"}]}, "messages[0].role"),
    (CONVERSATION, {**TALK, "messages": [{"role": "r" * 65, "content": "x"}]}, "messages[0].role"),
    (CONVERSATION, {**TALK, "messages": [{"role": "a:b", "content": "x"}]}, "messages[0].role"),
    (CONVERSATION, {**TALK, "messages": [{"role": "a\nb", "content": "x"}]}, "messages[0].role"),
    (CONVERSATION, {**TALK, "messages": [{"role": "u", "content": {"t": 1}}]}, "messages[0].content"),
    (CONVERSATION, {**TALK, "messages": [{"role": "u", "content": "x"}, {"role": "u"}]}, "messages[1].content"),
    (CONVERSATION, {**TALK, "messages": [{"role": "u", "content": "x", "at": "2026"}]}, "messages[0].at"),
    (CONVERSATION, {**TALK, "messages": [{"role": "u", "content": "a" * (limits.MIB + 1)}]}, "messages[0].content"),
    (CONVERSATION, {**TALK, "messages": [{"role": "u", "content": "x", "name": "y"}]}, "messages[0].name"),
    (BATCH, {}, "items"),
    (BATCH, {"items": []}, "items"),
    (BATCH, {"items": [{"text": "x"}] * 1_001}, "items"),
    (BATCH, {"items": [{"text": "x"}, {"text": ""}]}, "items[1].text"),
    (BATCH, {"items": [{**TALK, "messages": []}]}, "items[0].messages"),
    (READ, {}, "question"),
    (READ, {"question": ""}, "question"),
    (READ, {"question": "ä" * (16 * 1024 + 1)}, "question"),
    (READ, {"question": {"q": 1}}, "question"),
    (READ, {"question": "a\u0000"}, "question"),
    (READ, {"question": "x", "recent": [{"role": "u", "content": "x"}] * 51}, "recent"),
    (READ, {"question": "x", "recent": [{"role": "u", "content": "a" * (64 * 1024 + 1)}]}, "recent[0].content"),
    (READ, {"question": "x", "scope": {"workspaceId": LONG}}, "scope.workspaceId"),
    (READ, {"question": "x", "scope": {"project": "p"}}, "scope.project"),
    (READ, {"question": "x", "scope": "global"}, "scope"),
    (READ, {"question": "x", "revision": -1}, "revision"),
    (READ, {"question": "x", "revision": 2**53}, "revision"),
    (READ, {"question": "x", "revision": "1"}, "revision"),
    (READ, {"question": "x", "revision": True}, "revision"),
    (READ, {"question": "x", "maxItems": 0}, "maxItems"),
    (READ, {"question": "x", "maxItems": 17}, "maxItems"),
    (READ, {"question": "x", "maxItems": 4.5}, "maxItems"),
    (READ, {"question": "x", "flush": True}, "flush"),
    (READ, {"question": "x", "flush": True, "revision": 1}, "flush"),
    (READ, {"question": "x", "filter": {}}, "filter"),
    (ERASE, {}, "sessionId"),
    (ERASE, {"sessionId": LONG}, "sessionId"),
    (ERASE, {"store": True}, "store"),
]

NOT_JSON = [
    b"", b"{", b"{'text': 'x'}", b'{"text": "x"} {}', b'{"text": NaN}', b'{"text": "\xff"}', b'{"text": "\\x"}',
    b"[" * 100_000, b'{"text": "a\nb"}',
]  # fmt: skip


def test_each_limit_names_its_field(client: httpx.Client) -> None:
    for path, body, field in REFUSED:
        answer = client.post(path, json=body)
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (422, "/problems/invalid-request"), (path, field, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert [entry["field"] for entry in problem["errors"]] == [field], (path, problem)
        assert field in problem["detail"]
        assert all(entry["message"] for entry in problem["errors"])
    assert client.get("/v1/jobs").json()["items"] == []


def test_what_just_fits_is_accepted(client: httpx.Client) -> None:
    fits = [
        (WRITE, {"text": "😀", "id": "a" * 90, "source": "🚀" * 200, "workspaceId": "w" * 200, "sessionId": "s" * 200}),
        (WRITE, {"text": "\ufeff\u202e\u200d e\u0301 \ufffe <|endoftext|>"}),
        (CONVERSATION, {**TALK, "messages": [{"role": "r" * 64, "content": ""}]}),
        (BATCH, {"items": [{"text": "x"}] * 1_000}),
        (READ, {"question": "ä" * (16 * 1024), "maxItems": 16.0, "recent": [{"role": "u", "content": "x"}] * 50}),
    ]
    for path, body in fits:
        answer = client.post(path, json=body, headers={"Prefer": "wait=0"})
        assert answer.status_code == 202, answer.text


def test_a_lone_surrogate_is_refused_wherever_it_is(client: httpx.Client) -> None:
    bodies = [
        (WRITE, r'{"text": "a\ud800b"}', "text"),
        (WRITE, r'{"text": "x", "source": "\udfff"}', "source"),
        (WRITE, r'{"text": "x", "sessionId": "\ud83d"}', "sessionId"),
        (CONVERSATION, r'{"sessionId": "s", "messages": [{"role": "\ud800", "content": "x"}]}', "messages[0].role"),
        (
            CONVERSATION,
            r'{"sessionId": "s", "messages": [{"role": "u", "content": "\ude00\ud83d"}]}',
            "messages[0].content",
        ),
        (READ, r'{"question": "\ud800"}', "question"),
        (READ, r'{"question": "x", "recent": [{"role": "u", "content": "\ud800"}]}', "recent[0].content"),
        (ERASE, r'{"workspaceId": "\ud800"}', "workspaceId"),
    ]
    for path, body, field in bodies:
        answer = client.post(path, content=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == field
    pair = client.post(WRITE, content=r'{"text": "\ud83d\ude00"}')
    assert pair.status_code == 202


def test_what_is_not_json_is_refused(client: httpx.Client) -> None:
    for body in NOT_JSON:
        answer = client.post(WRITE, content=body)
        assert answer.status_code == 422, body[:40]
        assert answer.json()["errors"][0]["field"] == "body"


def test_what_is_wrong_in_json_is_told_by_its_byte(client: httpx.Client) -> None:
    told = {
        b"": "is empty; send JSON",
        b'{"text": "x"': "is not JSON at byte 12: it breaks off",
        b'{"text": NaN}': "is not JSON at byte 9: NaN is no JSON value",
        '{"text": "é", "id": 1e999}'.encode(): "holds a number out of range at byte 21: 1e999",
        b'{"id": "1", "text": ' + b"7" * 5_000 + b"}": f"holds a number out of range at byte 20: {'7' * 30}…",
        b"[" * 100_000: "is nested too deeply",
    }
    for body, message in told.items():
        refused = client.post(WRITE, content=body).json()
        assert refused["errors"] == [{"field": "body", "message": message}]


def test_a_key_that_is_given_twice_is_named(client: httpx.Client) -> None:
    for path, body, key in (
        (WRITE, '{"text": "a", "text": "b"}', "text"),
        (CONVERSATION, '{"sessionId": "s", "messages": [{"role": "u", "content": "x", "role": "a"}]}', "role"),
        (READ, r'{"question": "x", "sc\u006fpe": {}, "scope": {}}', "scope"),
        ("/v1/stores/journal", '{"view": {}, "view": {"maxItems": 1}}', "view"),
    ):
        answer = client.request("PUT" if path.endswith("journal") else "POST", path, content=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"] == [{"field": key, "message": "is given twice in one object; send it once"}]


def test_a_packed_body_is_refused_and_says_to_send_it_plain(client: httpx.Client) -> None:
    packed = gzip.compress(b'{"text": "x"}')
    for method, path in (("POST", WRITE), ("PUT", "/v1/stores/journal"), ("PATCH", f"/v1/imports/{uuid7()}")):
        headers = {"Content-Encoding": "gzip", "Upload-Offset": "0"}
        answer = client.request(method, path, content=packed, headers=headers)
        assert answer.status_code == 415, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["accept-encoding"] == "identity"
        assert "send it plain" in answer.json()["detail"]
    plain = client.post(WRITE, content=b'{"text": "x"}', headers={"Content-Encoding": "identity"})
    assert plain.status_code == 202


def test_another_type_is_named_when_the_body_is_no_json(client: httpx.Client) -> None:
    """What is JSON is taken whatever it is called: curl's `-d` calls everything a form."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post(WRITE, content=b'{"text": "x"}', headers=form).status_code == 202
    assert client.post(WRITE, content=b'{"text": "x"}', headers={"Content-Type": "text/xml"}).status_code == 202
    answer = client.post(WRITE, content=b"<text>x</text>", headers={"Content-Type": "text/xml; charset=utf-8"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["message"].endswith("send JSON, not text/xml")


def test_a_deep_body_is_refused(client: httpx.Client) -> None:
    answer = client.post(WRITE, content=b'{"text": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}")
    assert answer.status_code == 422


def test_too_large_bodies_are_not_read(api: Api, client: httpx.Client) -> None:
    over = limits.BODY_BYTES + 1
    for path, size in ((WRITE, over), (BATCH, over), (CONVERSATION, over), (ERASE, limits.MIB + 1)):
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: {client.headers['authorization']}"]
        head = "\r\n".join([*lines, f"Content-Length: {size}", "", ""])
        status, body = raw(api, head.encode())  # nothing of the body is ever sent
        assert status == 413
        assert json.loads(body)["type"] == "/problems/too-large"


def test_a_chunked_body_is_cut_off_at_the_limit(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"sessionId": "'
        for _ in range(20):
            yield b"a" * (limits.MIB // 16)

    answer = client.post(ERASE, content=chunks())
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")
    small = client.post(ERASE, content=iter([b'{"sessionId":', b'"s"}']))
    assert small.status_code == 202


def test_texts_over_their_limit_are_too_large(client: httpx.Client) -> None:
    just = client.post(WRITE, json={"text": "a" * limits.TEXT_BYTES})
    assert just.status_code == 202
    over = client.post(WRITE, json={"text": "a" * (limits.TEXT_BYTES + 1)})
    assert (over.status_code, over.json()["type"]) == (413, "/problems/too-large")
    assert over.json()["errors"][0]["field"] == "text"
    packed = [{"role": "u", "content": "a" * limits.MIB}] * 5
    talk = client.post(CONVERSATION, json={**TALK, "messages": packed})
    assert (talk.status_code, talk.json()["errors"][0]["field"]) == (413, "messages")


WRONG_PARAMETERS = [
    ("/v1/jobs?stat=queued", "stat"),
    ("/v1/jobs?limit=5&limit=6", "limit"),
    ("/v1/jobs?store=journal&workspace=w", "workspace"),
    ("/v1/jobs?state=ready", "state[0]"),
    ("/v1/jobs?limit=0", "limit"),
    ("/v1/jobs?limit=1001", "limit"),
    ("/v1/jobs?limit=ten", "limit"),
    ("/v1/jobs?cursor=abc", "cursor"),
    ("/v1/jobs?cursor=W10", "cursor"),
    ("/v1/jobs?store=%00", "store"),
    ("/v1/jobs/not-an-id", "job"),
    ("/v1/stores/journal/records?kind=document", "kind"),
    ("/v1/stores/journal/records?revision=-1", "revision"),
    ("/v1/stores/journal/records?revision=99", "revision"),
    ("/v1/stores/journal/records/a%00b", "id"),
    ("/v1/jobs?cursor=WyJqb2JzIiwieCJd", "cursor"),  # of the right list, but no job's id
]


def test_parameters_that_are_unknown_or_wrong(client: httpx.Client) -> None:
    for path, field in WRONG_PARAMETERS:
        answer = client.get(path)
        assert answer.status_code == 422, (path, answer.text)
        assert answer.json()["errors"][0]["field"] == field


def test_a_cursor_is_good_for_its_own_list_alone(client: httpx.Client) -> None:
    for n in range(3):
        assert client.post(WRITE, json={"text": str(n)}).status_code == 202
    cursor = client.get("/v1/jobs?limit=1").json()["nextCursor"]
    assert client.get("/v1/jobs", params={"cursor": cursor}).status_code == 200
    other = client.get("/v1/stores/journal/records", params={"cursor": cursor})
    assert (other.status_code, other.json()["errors"][0]["field"]) == (422, "cursor")


def raw(api: Api, request: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to bytes sent as they are."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
            if b"}" in data:
                break
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), body
