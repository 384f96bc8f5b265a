"""The proof of a View by an export, offline: each text it shows is literally in a record, and that in its document."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

from core.errors import InvalidRequest
from core.jsontext import loads


def verify(view: Mapping[str, Any], lines: Iterable[bytes]) -> Iterator[tuple[str, list[str]]]:
    """For each record that the View cites: its id, and what is wrong about it (nothing: it is proved).

    `lines`: an export's, of which the records count. Raises InvalidRequest for what is no View or no export."""
    items = [cast("dict[str, Any]", item) for item in _list(view, "items")]
    cited = items + [entry for block in _list(view, "blocks") for entry in _list(block, "evidence")]
    ids = {str(item["id"]) for item in cited}
    # Block n of a document is <document>-b<n> (contract.md, The record).
    records = _records(lines, ids | {own_id.rpartition("-b")[0] for own_id in ids})
    for item in cited:
        yield str(item["id"]), list(_faults(item, records))


def _list(part: Mapping[str, Any], name: str) -> list[Any]:
    value = part.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in cast("list[object]", value)):
        raise InvalidRequest.field(name, "must be a list of objects: this is no View")
    return cast("list[Any]", value)


def _records(lines: Iterable[bytes], wanted: set[str]) -> dict[str, bytes]:
    """Of the wanted ids, the lines by their SHA-256."""
    found: dict[str, bytes] = {}
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip(b"\r\n")
        if not line:
            continue
        record = loads(line, f"line {number} of the export")
        if isinstance(record, dict) and cast("dict[str, Any]", record).get("id") in wanted:
            found[sha256(line).hexdigest()] = line
    return found


def _faults(item: Mapping[str, Any], records: Mapping[str, bytes]) -> Iterator[str]:
    line = records.get(str(item.get("sha256")))
    record = None if line is None else cast("dict[str, Any]", loads(line))
    if record is None or record.get("id") != item["id"]:
        yield "no record of this id and hash is in the export"
        return
    content = str(record["content"]).encode()
    if "text" in item:
        span: dict[str, int] = item.get("span") or {"start": 0, "end": len(content)}
        if content[span["start"] : span["end"]] != str(item["text"]).encode():
            yield "its text is not what the record holds at these bytes"
    data: dict[str, Any] = record.get("data") or {}
    parent: dict[str, Any] | None = data.get("parent")
    if item.get("parent", parent) != parent:
        yield "its parent is not the record's"
    if parent is not None:
        yield from _parent_faults(parent, content, records)


def _parent_faults(parent: Mapping[str, Any], content: bytes, records: Mapping[str, bytes]) -> Iterator[str]:
    line = records.get(str(parent["sha256"]))
    document = None if line is None else cast("dict[str, Any]", loads(line))
    if document is None or document.get("id") != parent["id"]:
        yield "no document of its parent's id and hash is in the export"
    elif str(document["content"]).encode()[parent["start"] : parent["end"]] != content:
        yield "its document does not hold it at these bytes"
