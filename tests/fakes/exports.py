"""ChatGPT exports made up for tests: as many conversations and messages as wanted, all different."""

import io
import json
import zipfile
from typing import Any

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z
HOUR = 3_600


def conversation(number: int, *, messages: int = 2, days: int = 1, words: int = 8) -> dict[str, Any]:
    """One conversation; its messages are an hour apart and begin anew, a day later, `days` times."""
    nodes: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    parent = "root"
    for place in range(messages * days):
        at = START + number * 60 + (place // messages) * 24 * HOUR + (place % messages)
        node = f"m{place}"
        nodes[parent]["children"].append(node)
        nodes[node] = {
            "id": node,
            "parent": parent,
            "children": [],
            "message": {
                "id": node,
                "author": {"role": "user" if place % 2 == 0 else "assistant"},
                "create_time": at,
                "content": {"content_type": "text", "parts": [_words(number, place, words)]},
            },
        }
        parent = node
    return {
        "title": f"Conversation {number}",
        "conversation_id": f"conversation-{number}",
        "create_time": START + number * 60,
        "mapping": nodes,
        "current_node": parent,
    }


def _words(number: int, place: int, words: int) -> str:
    return " ".join(f"w{number}-{place}-{word}" for word in range(words))


def export(count: int, **shape: Any) -> bytes:
    """`conversations.json` with `count` conversations."""
    return json.dumps([conversation(number, **shape) for number in range(count)]).encode()


def zipped(conversations: bytes, name: str = "conversations.json") -> bytes:
    """An export as it is downloaded: a zip that holds other files, too."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        archive.writestr(name, conversations)
    return packed.getvalue()
