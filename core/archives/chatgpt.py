"""ChatGPT exports: a JSON array of conversations, each a tree of messages (`mapping`).

The message that a reader of the conversation saw last is `current_node`; its ancestors are the conversation. Everything
else in the export, from other branches to tool calls, is left out and reported.
"""

import re
from collections.abc import Iterator

from core.archives.foreign import clean, epoch_time, fields, items, label, string
from core.archives.identity import content_id, session_id
from core.archives.model import Conversation, Message, Skipped
from core.archives.tree import Tree

SOURCE = "chatgpt"

_FILE = re.compile(r"(?:.*/)?conversations(?:-(\d{1,9}))?\.json")
_KEPT = frozenset({"", "text", "multimodal_text", "code", "execution_output"})
_LEFT_OUT = {
    "user_editable_context": "custom instructions",
    "model_editable_context": "the model's own notes",
    "thoughts": "the model's reasoning",
    "reasoning_recap": "the model's reasoning",
}
_KNOWN = _KEPT | _LEFT_OUT.keys()
_POINTERS = {
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
    "video_container_asset_pointer": "video",
    "real_time_user_audio_video_asset_pointer": "audio",
}
# Marks around citations and highlights. A citation holds only keys of search results; a highlight holds words.
_CITATION = re.compile(" ?\ue200(?:file)?cite\ue202[^\ue200\ue201]*\ue201")
_MARKS = re.compile("[\ue200-\ue206]")


def file_order(name: str) -> int | None:
    """Where a file stands among an export's (`conversations.json`, `conversations-000.json`, …); None: not one."""
    found = _FILE.fullmatch(name)
    return None if found is None else int(found[1] or -1)


def recognises(entry: object) -> bool:
    """Whether `entry` is a conversation of this format. Broken exports hold some that are not."""
    return isinstance(fields(entry).get("mapping"), dict)


def conversation(entry: object, where: str) -> Iterator[Conversation | Skipped]:
    """The conversation in one entry of the array, after everything of it that is left out."""
    record = fields(entry)
    given = string(record.get("conversation_id")) or string(record.get("id"))
    name = f"conversation {label(given)}" if given else where
    if not recognises(entry):
        yield Skipped("conversation", name, "it has no mapping")
        return
    nodes = fields(record["mapping"])
    path = _path(nodes, record.get("current_node"))
    messages: list[Message] = []
    for node in path:
        for found in _on_path(node, fields(nodes[node]), f"{name}, message {label(node)}"):
            if isinstance(found, Message):
                messages.append(found)
            else:
                yield found
    yield from _off_path(nodes, path, name)
    if not messages:
        yield Skipped("conversation", name, "it has no message to import")
        return
    yield Conversation(
        source=SOURCE,
        id=session_id(SOURCE, given) if given else content_id(SOURCE, entry),
        title=label(string(record.get("title"))) or None,
        at=epoch_time(record.get("create_time")),
        messages=tuple(messages),
    )


def _path(nodes: dict[str, object], current: object) -> list[str]:
    parents = {node: string(fields(value).get("parent")) or None for node, value in nodes.items()}
    return Tree(parents, lambda node: _seconds(nodes[node])).path(string(current) or None)


def _seconds(node: object) -> float:
    at = epoch_time(fields(fields(node).get("message")).get("create_time"))
    return at.timestamp() if at else 0.0


def _off_path(nodes: dict[str, object], path: list[str], name: str) -> Iterator[Skipped]:
    shown = set(path)
    for node, value in nodes.items():
        if node not in shown and fields(value).get("message") is not None:
            yield Skipped("message", f"{name}, message {label(node)}", "it is on an abandoned branch")


def _on_path(node: str, value: dict[str, object], where: str) -> Iterator[Message | Skipped]:
    """The node's message and what of it is left out. A node without a message (the root is one) gives nothing."""
    if value.get("message") is None:
        return
    message = fields(value["message"])
    kind = string(fields(message.get("content")).get("content_type"))
    reason = _reason(message, kind)
    if reason:
        yield Skipped("message", where if kind in _KNOWN else f"{where} ({label(kind)})", reason)
        return
    pieces, missing = _pieces(message)
    content = clean(_MARKS.sub("", _CITATION.sub("", "\n".join(pieces))))
    if not content.strip():
        yield Skipped("message", where, "it is empty")
        return
    yield Message(
        role=clean(string(fields(message.get("author")).get("role"))) or "unknown",
        content=content,
        at=epoch_time(message.get("create_time")),
        id=clean(string(message.get("id")) or node),
    )
    for what in missing:
        yield Skipped("attachment", where, f"{what}: only its place is kept")


def _reason(message: dict[str, object], kind: str) -> str:
    """Why a whole message is left out; empty when it is kept."""
    if kind not in _KEPT:
        return _LEFT_OUT.get(kind, "content of another kind")
    if fields(message.get("metadata")).get("is_visually_hidden_from_conversation") is True:
        return "hidden from the conversation"
    return "a call of a tool" if (string(message.get("recipient")) or "all") != "all" else ""


def _pieces(message: dict[str, object]) -> tuple[list[str], list[str]]:
    """The message's strings in order, a placeholder such as `[image]` for each thing that is no text; those things."""
    content = fields(message.get("content"))
    pieces: list[str] = []
    missing: list[str] = []
    parts = items(content.get("parts")) or [content.get("text")]
    for part in parts:
        text = part if isinstance(part, str) else string(fields(part).get("text"))
        if not text and part not in (None, ""):
            what = _POINTERS.get(string(fields(part).get("content_type")), "attachment")
            text = f"[{what}]"
            missing.append(what)
        pieces.append(text)
    pointers = [string(fields(part).get("asset_pointer")) for part in parts]
    for attachment in map(fields, items(fields(message.get("metadata")).get("attachments"))):
        # An attached image stands twice in an export: here, and as a pointer among the parts.
        file = string(attachment.get("id"))
        if not (file and any(file in pointer for pointer in pointers)):
            pieces.append(f"[file: {label(string(attachment.get('name'))) or 'unnamed'}]")
            missing.append("file")
    return [piece for piece in pieces if piece], missing
