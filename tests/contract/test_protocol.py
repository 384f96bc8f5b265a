"""HTTP itself, on raw sockets: what is no request is refused before the app sees it, and nothing grows without a bound."""

import json
import re
import select
import socket
from contextlib import suppress

import httpx
import pytest

from api.protocol import HEAD_BYTES, PIPELINED
from tests.contract.server import Api

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/stores/journal/memories HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
OVER = HEAD_BYTES + 1

NO_REQUEST = {
    "no Host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two Hosts": GET + b"Host: y\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "lower-case method": b"get /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "a space before the colon": GET + b"a : b\r\n\r\n",
    "a name with a space": GET + b"a b: c\r\n\r\n",
    "a name with a byte over 127": GET + b"a\xe9: b\r\n\r\n",
    "an empty name": GET + b": b\r\n\r\n",
    "NUL in a value": GET + b"a: b\x00c\r\n\r\n",
    "a bare CR in a value": GET + b"a: b\rc: d\r\n\r\n",
    "a folded line": GET + b"a: b\r\n c\r\n\r\n",
    "lines that end with LF alone": b"GET /healthz HTTP/1.1\nHost: x\n\n",
    "NUL in the path": b"GET /healthz\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "length and chunks": POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nXY",
    "a signed length": POST + b"Content-Length: +1\r\n\r\nX",
    "a negative length": POST + b"Content-Length: -1\r\n\r\nX",
    "gzip before chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nX\r\n0\r\n\r\n",
    "gzip in a line of its own": POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding nobody knows": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "an empty item": POST + b"Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
    "a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a chunk's size with 0x": CHUNKED + b"0x1\r\nX\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-1\r\nX\r\n0\r\n\r\n",
    "a chunk's size beyond 64 bits": CHUNKED + b"f" * 17 + b"\r\nX",
    "a chunk longer than it says": CHUNKED + b"1\r\nXY\r\n0\r\n\r\n",
    "chunks that end with LF alone": CHUNKED + b"1\nX\n0\n\n",
}

# What comes first, and what comes again and again behind it.
ENDLESS = {
    "one line": (GET + b"a: ", b"b"),
    "the path": (b"GET /", b"a"),
    "lines": (GET, b"a: b\r\n"),
    "lines before a request": (b"", b"\r\n"),
    "a chunk's extension": (CHUNKED + b"1;", b"a"),
    "a chunk's size": (CHUNKED, b"0"),
    "a trailer": (CHUNKED + b"1\r\n{\r\n0\r\na: ", b"b"),
    "trailers": (CHUNKED + b"1\r\n{\r\n0\r\n", b"a: b\r\n"),
}


class Wire:
    """A connection that says what it likes."""

    def __init__(self, api: Api) -> None:
        host, port = api.url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._got = b""

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end(self) -> str:
        """All that was answered by the time the server has closed."""
        with suppress(ConnectionResetError):  # it does not read what it has refused
            while data := self._socket.recv(65_536):
                self._got += data
        return self._got.decode("latin-1")

    def closes(self, seconds: float) -> bool:
        """Whether the server, which has nothing more to say, closes within this time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def until(self, text: str) -> str:
        while text not in (got := self._got.decode("latin-1")):
            data = self._socket.recv(65_536)
            assert data, f"closed after {got}"
            self._got += data
        return got


def statuses(answer: str) -> list[int]:
    return [int(found) for found in re.findall(r"HTTP/1\.1 (\d{3}) ", answer)]


@pytest.mark.parametrize("name", NO_REQUEST)
def test_what_is_no_request_is_refused_and_the_connection_closes(api: Api, name: str) -> None:
    with Wire(api) as wire:
        wire.send(NO_REQUEST[name])
        answer = wire.end()
    assert statuses(answer) == [400], answer
    assert "connection: close" in answer
    assert "content-type: application/problem+json" in answer
    assert json.loads(answer.partition("\r\n\r\n")[2])["status"] == 400


@pytest.mark.parametrize("name", ENDLESS)
def test_what_does_not_end_is_refused_when_it_grows_too_long(api: Api, client: httpx.Client, name: str) -> None:
    first, more = ENDLESS[name]
    key = f"Host: x\r\nAuthorization: {client.headers['authorization']}\r\n".encode()
    with Wire(api) as wire:
        with suppress(ConnectionError):
            wire.send(first.replace(b"Host: x\r\n", key))
            for _ in range(64):  # much more than is read at once
                wire.send(more * (HEAD_BYTES // 4 // len(more)))
        # An answer may be lost when the connection ends with bytes that nobody has read.
        assert statuses(wire.end()) in ([431], [])


def test_requests_do_not_gather_without_a_bound_before_their_answers(api: Api) -> None:
    """Small ones, in one packet: as many as may be are kept, then the one being answered is the last."""
    asked = GET + b"\r\n"
    with Wire(api) as wire:
        wire.send(asked * PIPELINED + GET + b"Connection: close\r\n\r\n")
        assert statuses(wire.end()) == [200] * (PIPELINED + 1)
    with Wire(api) as wire:
        with suppress(ConnectionError):
            wire.send(asked * 20 * PIPELINED)
        assert len(statuses(wire.end())) <= 1


def test_a_head_of_the_limit_is_read_and_a_longer_one_is_431(api: Api) -> None:
    for size, status in ((HEAD_BYTES - 200, 200), (OVER, 431)):
        with Wire(api) as wire:
            wire.send(GET + b"Connection: close\r\na: " + b"b" * size + b"\r\n\r\n")
            answer = wire.end()
        assert statuses(answer) == [status]
    assert f"over {HEAD_BYTES} bytes" in answer


def test_a_long_body_does_not_count_as_head(api: Api, client: httpx.Client) -> None:
    """In one packet with the end of a body, or behind many requests, a new head has its whole length."""
    with Wire(api) as wire:
        authorization = f"Authorization: {client.headers['authorization']}\r\n".encode()
        body = json.dumps({"text": "x" * (4 * HEAD_BYTES)}).encode()
        write = POST + authorization + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        wire.send(GET + b"\r\n" + write + GET + b"a: " + b"b" * (HEAD_BYTES - 1_000))
        wire.until("/v1/jobs/")
        wire.send(b"\r\nConnection: close\r\n\r\n")
        assert statuses(wire.end()) == [200, 202, 200]


def test_what_was_asked_before_something_bad_is_answered_alone(api: Api) -> None:
    """A status in the midst of another answer would be taken for a part of it."""
    for bad in (b"garbage\r\n\r\n", CHUNKED + b"zz\r\n", POST + b"Content-Length: x\r\n\r\n"):
        with Wire(api) as wire:
            wire.send(GET + b"\r\n" + bad + GET + b"\r\n")
            answer = wire.end()
        assert statuses(answer) == [200], answer
        assert answer.endswith("}"), answer


def test_something_bad_after_an_answer_is_400(api: Api) -> None:
    with Wire(api) as wire:
        wire.send(GET + b"\r\n")
        wire.until("}")
        wire.send(b"garbage\r\n\r\n")
        assert statuses(wire.end()) == [200, 400]


def test_trailers_are_no_headers(api: Api, client: httpx.Client) -> None:
    trailer = f"0\r\nAuthorization: {client.headers['authorization']}\r\n\r\n".encode()
    with Wire(api) as wire:
        wire.send(CHUNKED + b"1\r\n{\r\n" + trailer)
        wire.until("Authorization: Bearer mun_")
        wire.send(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert statuses(wire.end()) == [401, 401]


def test_spaces_around_a_value_are_none_of_it(api: Api, client: httpx.Client) -> None:
    with Wire(api) as wire:
        key = client.headers["authorization"].encode()
        wire.send(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization:  \t" + key + b" \t\r\n\r\n")
        assert statuses(wire.end()) == [200]


# Offers of another protocol, and heads that do not end ----------------------------------------------------------------

LENGTH = (b"Content-Length: 13\r\n", b'{"text": "x"}')
CHUNKS = (b"Transfer-Encoding: chunked\r\n", b'4\r\n{"te\r\n9\r\nxt": "x"}\r\n0\r\n\r\n')
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
OFFERS = {
    "as curl": H2C,
    "as Java": H2C.lower().replace(b": ", b":"),
    "a WebSocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "two": b"Upgrade: TLS/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n",
}
LAST = GET + b"Connection: close\r\n\r\n"


def key_line(client: httpx.Client) -> bytes:
    return f"Authorization: {client.headers['authorization']}\r\n".encode()


@pytest.mark.parametrize("offer", OFFERS)
def test_an_offer_of_another_protocol_is_declined_and_the_body_is_read(
    api: Api, client: httpx.Client, offer: str
) -> None:
    for framing, body in (LENGTH, CHUNKS):
        head = POST + key_line(client) + OFFERS[offer] + framing + b"\r\n"
        for pieces in (
            [head + body + LAST],
            [GET + b"\r\n" + POST + key_line(client) + framing + b"\r\n" + body + head + body + LAST],
            [head, body, LAST],
            [head[:-1], head[-1:] + body[:3], body[3:] + LAST],
            [bytes([byte]) for byte in head + body + LAST],
        ):  # fmt: skip
            with Wire(api) as wire:
                for piece in pieces:
                    wire.send(piece)
                answer = wire.end()
            assert statuses(answer) in ([202, 200], [200, 202, 202, 200]), answer


def test_an_offer_without_a_body_keeps_its_connection(api: Api) -> None:
    with Wire(api) as wire:
        wire.send((GET + H2C + b"\r\n") * 2)  # the second one waits for the first one's answer
        wire.send(GET + H2C + b"\r\n" + LAST)
        answer = wire.end()
    assert statuses(answer) == [200] * 4
    assert answer.count("connection: close") == 1


def test_an_offer_with_a_body_that_is_asked_for(api: Api, client: httpx.Client) -> None:
    framing, body = LENGTH
    with Wire(api) as wire:
        wire.send(POST + key_line(client) + H2C + framing + b"Expect: 100-continue\r\n\r\n")
        wire.until("100 Continue")
        wire.send(body + LAST)
        assert statuses(wire.end()) == [100, 202, 200]


@pytest.mark.parametrize("name", [name for name, asked in NO_REQUEST.items() if asked.startswith(POST)])
def test_an_offer_opens_no_other_way_to_read_a_body(api: Api, name: str) -> None:
    with Wire(api) as wire:
        wire.send(NO_REQUEST[name].replace(b"Host: x\r\n", b"Host: x\r\n" + H2C))
        assert statuses(wire.end()) == [400]


def test_a_head_of_the_limit_may_hold_an_offer_and_a_longer_one_is_431(api: Api) -> None:
    for size, status in ((HEAD_BYTES - 400, 200), (OVER, 431)):
        with Wire(api) as wire:
            wire.send(GET + H2C.replace(b"Connection: ", b"Connection: close, ") + b"a: " + b"b" * size + b"\r\n\r\n")
            assert statuses(wire.end()) == [status]


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"G", GET, GET + b"a: b"])
def test_a_head_that_does_not_come_in_time_ends_its_connection(
    api: Api, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.protocol.HEAD_SECONDS", 0.2)
    expected = [408] if begun.startswith(b"G") else []
    with Wire(api) as wire:
        wire.send(begun)
        answer = wire.end()
    assert statuses(answer) == expected
    assert ("within 0.2 s" in answer) == bool(expected)
    if begun:  # behind a request as well, where a silent connection is kept
        with Wire(api) as wire:
            wire.send(GET + b"\r\n")
            wire.until("}")
            wire.send(begun)
            assert statuses(wire.end()) == [200, *expected]


def test_a_head_may_be_slow_while_the_answer_before_it_is(
    api: Api, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.protocol.HEAD_SECONDS", 0.3)
    framing, body = LENGTH
    with Wire(api) as wire:  # nobody works here, so that the wait lasts its whole second
        wire.send(POST + key_line(client) + framing + b"Prefer: wait=1\r\n\r\n" + body + LAST[:20])
        wire.until("/v1/jobs/")
        wire.send(LAST[20:])
        assert statuses(wire.end()) == [202, 200]


def test_a_kept_connection_and_a_slow_body_are_not_ended_by_the_wait_for_a_head(
    api: Api, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.protocol.HEAD_SECONDS", 0.2)
    framing, body = LENGTH
    with Wire(api) as idle, Wire(api) as slow:
        idle.send(GET + b"\r\n")
        idle.until("}")
        slow.send(POST + key_line(client) + framing + b"\r\n" + body[:5])
        for _ in range(3):
            with Wire(api) as silent:  # a whole wait
                assert silent.end() == ""
        idle.send(LAST)
        assert statuses(idle.end()) == [200, 200]
        slow.send(body[5:] + LAST)
        assert statuses(slow.end()) == [202, 200]


ANSWERED = {
    "a piece of a body": (b"Content-Length: 100\r\n", b"x"),
    "a whole body": (b"Content-Length: 2\r\n", b"xx"),
    "a body and a line": (b"Content-Length: 2\r\n", b"xx\r\n"),
    "a body and a part of a head": (b"Content-Length: 2\r\n", b"xxGE"),
    "a piece of a chunk's size": (b"Transfer-Encoding: chunked\r\n", b"5"),
    "chunks": (b"Transfer-Encoding: chunked\r\n", b"1\r\nx\r\n0\r\n\r\n"),
    "a piece of a trailer": (b"Transfer-Encoding: chunked\r\n", b"0\r\na: "),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_what_comes_behind_an_answer_keeps_no_connection(api: Api, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal need not wait for the body; whoever sends on must not be able to stay for it."""
    monkeypatch.setattr("api.protocol.HEAD_SECONDS", 0.2)
    framing, later = ANSWERED[name]
    with Wire(api) as wire:
        wire.send(POST + framing + b"\r\n")
        wire.until("/problems/")  # no key
        wire.send(later)
        assert statuses(wire.end()) == ([401, 408] if later.endswith(b"GE") else [401])


def test_a_body_behind_its_answer_may_not_go_on_for_ever(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.protocol.HEAD_SECONDS", 0.2)
    with Wire(api) as wire:
        wire.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        wire.until("/problems/")
        for _ in range(200):
            if wire.closes(0.05):
                return
            wire.send(b"1\r\nx\r\n")
    pytest.fail("it was still read after ten seconds")


def test_a_body_that_is_waited_for_is_asked_for(api: Api, client: httpx.Client) -> None:
    key = f"Authorization: {client.headers['authorization']}\r\nContent-Length: 13\r\n".encode()
    with Wire(api) as wire:
        wire.send(POST + key + b"Connection: close\r\nExpect: 100-continue\r\n\r\n")
        wire.until("100 Continue")
        wire.send(b'{"text": "x"}')
        assert statuses(wire.end()) == [100, 202]
    with Wire(api) as wire:  # HTTP/1.0 knows no such status
        wire.send(POST.replace(b"/1.1", b"/1.0") + key + b"Expect: 100-continue\r\n\r\n" + b'{"text": "x"}')
        assert statuses(wire.end()) == [202]


def test_http_1_0_gets_no_chunks(api: Api, client: httpx.Client) -> None:
    """A stream of unknown length ends with its connection; load balancers probe with HTTP/1.0."""
    key = f"Authorization: {client.headers['authorization']}\r\n\r\n".encode()
    with Wire(api) as wire:
        wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert statuses(wire.end()) == [200]
    job = client.post("/v1/stores/journal/memories", json={"text": "x"}).json()["id"]
    events = f"/v1/jobs/{job}/events"
    client.post(f"/v1/jobs/{job}/cancel")
    with Wire(api) as wire:
        wire.send(f"GET {events} HTTP/1.0\r\n".encode() + key)
        head, _, body = wire.end().partition("\r\n\r\n")
    with client.stream("GET", events) as response:
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.read().decode() == body
    assert "cancelled" in body
    assert "transfer-encoding" not in head
    assert "content-length" not in head
