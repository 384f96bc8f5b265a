"""Opening archives: what is recognised, how zips are read, and what is refused."""

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Mapping

import pytest

from core.archives import container, reader
from core.archives.model import Conversation, Skipped
from core.archives.place import Place, digest, digests
from core.archives.reader import open_archive
from core.errors import InvalidRequest


def entry(name: str, text: str = "hello") -> dict[str, object]:
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [text]}}
    return {"id": name, "mapping": {"m": {"parent": None, "message": message}}}


def export(*names: str) -> bytes:
    return json.dumps([entry(name) for name in names]).encode()


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def ids(raw: bytes) -> list[str]:
    return [found.id for found in open_archive(io.BytesIO(raw)) if isinstance(found, Conversation)]


def skipped(raw: bytes, filename: str | None = None) -> list[tuple[str, str, str]]:
    found = open_archive(io.BytesIO(raw), filename)
    return [(s.item, s.where, s.reason) for s in found if isinstance(s, Skipped)]


@pytest.mark.parametrize(
    "raw",
    [
        export("a", "b"),
        b"\xef\xbb\xbf" + export("a", "b"),
        zipped({"conversations.json": export("a", "b")}),
        zipped({"conversations.json": export("a", "b")}, zipfile.ZIP_STORED),
        zipped({"My export/conversations.json": b"\xef\xbb\xbf" + export("a", "b")}),
        zipped({"conversations-010.json": export("b"), "conversations-002.json": export("a")}),
        zipped({"conversations-000.json": b"[]", "conversations-001.json": export("a", "b")}),
    ],
)
def test_the_known_shapes_are_read_in_order(raw: bytes) -> None:
    archive = open_archive(io.BytesIO(raw))
    assert archive.format == "chatgpt"
    assert ids(raw) == ["a", "b"]
    assert list(archive) == list(archive)  # it can be read again


def test_other_files_of_the_zip_are_named() -> None:
    raw = zipped({"chat.html": b"<p>", "conversations.json": export("a"), "images/x.png": b"", "images/": b""})
    assert skipped(raw) == [
        (("file"), name, "it is not a file of conversations") for name in ("chat.html", "images/x.png")
    ]


def test_a_conversation_that_comes_twice_is_imported_once() -> None:
    raw = zipped({"conversations-0.json": export("a"), "conversations-1.json": export("b", "a")})
    assert ids(raw) == ["a", "b"]
    assert skipped(raw) == [("conversation", "conversation a", "its id came before in this archive")]


def test_a_broken_first_entry_does_not_hide_the_format() -> None:
    raw = json.dumps([{"id": "x"}, 5, entry("a")]).encode()
    assert skipped(raw, "old.json") == [
        ("conversation", "conversation x", "it has no mapping"),
        ("conversation", "old.json, entry 2", "it has no mapping"),
    ]


NO_ARCHIVE: dict[bytes, str] = {
    b"": "up.json is empty: export or download it again",
    b" \r\n": "up.json is empty: export or download it again",
    b"\xef\xbb\xbf": "up.json is empty: export or download it again",
    b" " * 9_000: "up.json begins with nothing but white space",
    b"hello": "up.json is not JSON: it begins with 'hello'",
    b"\x00" * 100: "up.json is not JSON: it begins with '\\x00",
    b"<!DOCTYPE html>": "up.json is a web page",
    b"\x1f\x8b\x08" + b"x" * 50: "up.json is packed by gzip: unpack it first",
    b"%PDF-1.7": "up.json is a PDF",
    b"{}": "up.json is a JSON object, and an export is a list of conversations",
    b'{"conversations": []}': "up.json is a JSON object",
    b"[]": "up.json is an empty list: there is no conversation in this export",
    b'[{"uuid": "u", "chat_messages": []}]': "its only entry is none (fields: uuid, chat_messages)",
    b'[{"a": 1}, {"from": 2}]': "none of its first 2 entries is one (fields: a)",
    b'[5, "x"]': "none of its first 2 entries is one. Supported",
    b"[[[[": "up.json is incomplete or damaged (it breaks off in entry 1): export or download it again",
    export("a", "b")[:60]: "up.json is incomplete or damaged (it breaks off in entry 1): export or download it again",
    b'[{"a": nul}]': "up.json cannot be read: entry 1 is not valid JSON; export or download it again",
    export("a").decode().encode("utf-16"): "up.json is UTF-16 text: save it as UTF-8",
    b"PK": "The zip is damaged or incomplete: export or download it again",
    zipped({}): "The zip is empty",
    zipped({"users.json": b"[]", "general/2026.json": b"[]"}): (
        "The zip holds 2 files, and no conversations.json among them (users.json, general/2026.json)"
    ),
    zipped({f"{n}.txt": b"" for n in range(9)}): "(0.txt, 1.txt, 2.txt, 3.txt, 4.txt …)",
    zipped({"conversations.json": b""}): "conversations.json is empty",
    zipped({"conversations-0.json": b"[]", "conversations-1.json": b"{}"}): (
        "conversations-0.json is an empty list: there is no conversation in this export. "
        "conversations-1.json is a JSON object"
    ),
}


@pytest.mark.parametrize("raw", NO_ARCHIVE, ids=range(len(NO_ARCHIVE)))
def test_anything_else_is_refused_with_what_it_is_and_what_is_supported(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        open_archive(io.BytesIO(raw), "up.json")
    assert NO_ARCHIVE[raw] in refused.value.detail
    assert raw[:2] == b"PK" or "Supported: a ChatGPT export" in refused.value.detail


def test_an_archive_that_breaks_off_gives_its_conversations_and_then_fails() -> None:
    found: list[object] = []
    with pytest.raises(InvalidRequest, match=r"big\.json cannot be read to its end: it breaks off in entry 2"):
        found.extend(item.id for item in open_archive(io.BytesIO(export("a", "b")[:-20]), "big.json"))  # type: ignore[union-attr]
    stream = iter(open_archive(io.BytesIO(export("a", "b")[:-20])))
    assert isinstance(next(stream), Conversation)


def test_an_archive_without_a_message_is_never_a_success() -> None:
    raw = json.dumps([entry("a", ""), entry("b", " "), {"id": "c"}]).encode()
    with pytest.raises(InvalidRequest) as refused:
        list(open_archive(io.BytesIO(raw)))
    assert "2 × it has no message to import" in refused.value.detail
    assert "1 × it has no mapping" in refused.value.detail


def test_a_cut_zip_is_refused_and_a_damaged_one_does_not_end_well() -> None:
    good = zipped({"conversations.json": export("a", *map(str, range(2000)))}, zipfile.ZIP_STORED)
    with pytest.raises(InvalidRequest, match="damaged or incomplete"):
        open_archive(io.BytesIO(good[:-30]))
    flipped = bytearray(good)
    flipped[flipped.index(b"hello", 20_000)] ^= 1  # still JSON, but not what was packed
    archive = open_archive(io.BytesIO(bytes(flipped)))
    with pytest.raises(InvalidRequest, match=r"conversations\.json is damaged"):
        list(archive)


def test_a_bomb_is_refused_before_it_is_read() -> None:
    bomb = zipped({"conversations.json": b"[" + b" " * 20_000_000 + b"]"})
    assert len(bomb) < 100_000
    with pytest.raises(InvalidRequest, match="unpacks more than 200 fold"):
        open_archive(io.BytesIO(bomb))


def test_a_declared_size_that_lies_is_not_read_past() -> None:
    raw = bytearray(zipped({"conversations.json": export("a") + b" " * 500_000}))
    central = raw.index(b"PK\x01\x02")
    raw[central + 24 : central + 28] = struct.pack("<I", 40)  # the uncompressed size
    with pytest.raises(InvalidRequest):
        list(open_archive(io.BytesIO(bytes(raw))))


def test_the_total_and_the_number_of_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = zipped({"conversations-0.json": export("a"), "conversations-1.json": export("b")})
    monkeypatch.setattr(container, "MAX_TOTAL_BYTES", 150)
    with pytest.raises(InvalidRequest, match="more than 150 bytes"):
        open_archive(io.BytesIO(raw))
    monkeypatch.setattr(container, "MAX_MEMBERS", 1)
    with pytest.raises(InvalidRequest, match="more than 1 files"):
        open_archive(io.BytesIO(raw))


@pytest.mark.parametrize(("offset", "value", "why"), [(8, 1, "encrypted"), (10, 14, "rare method")])
def test_encrypted_and_oddly_packed_members_are_refused(offset: int, value: int, why: str) -> None:
    raw = bytearray(zipped({"conversations.json": export("a")}))
    for signature, shift in ((b"PK\x01\x02", 0), (b"PK\x03\x04", -2)):
        raw[raw.index(signature) + offset + shift] = value
    with pytest.raises(InvalidRequest, match=why):
        open_archive(io.BytesIO(bytes(raw)))


def test_only_the_first_entries_are_looked_at_to_tell_the_format() -> None:
    late = [{"id": str(i)} for i in range(reader._LOOKED_AT)]
    with pytest.raises(InvalidRequest, match="Supported"):
        open_archive(io.BytesIO(json.dumps([*late, entry("a")]).encode()))
    assert ids(json.dumps([*late[1:], entry("a")]).encode()) == ["a"]


def test_a_foreign_list_of_large_entries_is_neither_held_nor_read_whole() -> None:
    large = b'{"name": "n", "rest": [' + b'"x", ' * 150_000 + b'"x"]}'
    stream = io.BytesIO(b'[{"id": "a", "from": 1}, ' + b", ".join([large] * reader._LOOKED_AT) + b"]")
    size = stream.seek(0, io.SEEK_END)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=r"none of its first \d entries is one \(fields: id, from\)"):
            open_archive(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.tell() < 8 * 1024**2 < size / 8
    assert peak < 16 * 1024**2, "one entry or two, of a megabyte each"


TWICE = [{"id": "x"}, entry("a"), entry("b", ""), entry("a"), entry("c"), 5, entry("d")]


@pytest.mark.parametrize("method", [None, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_reading_goes_on_from_any_place_as_if_it_had_never_stopped(method: int | None) -> None:
    files = {"chat.html": b"<p>"} | {
        f"conversations-{n}.json": json.dumps([*TWICE, entry(f"only-{n}")], indent=n).encode() for n in range(3)
    }
    raw = json.dumps(TWICE).encode() if method is None else zipped(files, method)
    whole = list(open_archive(io.BytesIO(raw)).entries(Place(), set(), {}))
    assert [item for one in whole for item in one.found] == list(open_archive(io.BytesIO(raw)))
    for stop in range(1, len(whole) + 1):
        before = whole[:stop]
        place = Place.load(json.loads(json.dumps(before[-1].after.stored())))
        assert place.items == sum(len(one.found) for one in before)
        seen = {digest(c.id) for one in before for c in one.found if isinstance(c, Conversation)}
        assert list(open_archive(io.BytesIO(raw)).entries(place, seen, {})) == whole[stop:]


def test_an_archive_without_a_message_says_why_from_wherever_it_is_read() -> None:
    raw = json.dumps([entry("a", ""), entry("b", " "), {"id": "c"}]).encode()
    entries = open_archive(io.BytesIO(raw)).entries(Place(), set(), {})
    place = [next(entries), next(entries)][-1].after
    with pytest.raises(InvalidRequest, match=r"4 × it is empty.*1 × it has no mapping"):
        list(open_archive(io.BytesIO(raw)).entries(place, set(), {"it is empty": 4}))


def test_the_digests_that_were_stored_are_those_that_are_known() -> None:
    names = ["a", "b\ud800", "ü" * 200]
    joined = [digest(names[0]) + digest(names[1]), b"", digest(names[2])]
    assert digests(joined) == {digest(name) for name in names}
