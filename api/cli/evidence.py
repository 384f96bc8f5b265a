"""Evidence as a person would like to read it: dated quotes, who said them, where, and the proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.client import Client, quoted

if TYPE_CHECKING:
    from rich.console import RenderableType

SHORT_SHA = 12
MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a quote; `who` is empty when it goes on with the one before."""

    who: str
    said: str


def print_view(
    client: Client, store: str, view: Mapping[str, Any], console: Console, titles: Mapping[str, str]
) -> None:
    """The items of a View in its order. `titles` name conversations by their id, where there is a better name."""
    if not view["items"]:
        console.print(Text("  No evidence."))
    before = ""
    for item in view["items"]:
        messages: list[dict[str, Any]] = []
        if "session" in item:
            document = item["parent"]["id"] if "parent" in item else item["id"]
            messages = client.items(f"/stores/{quoted(store)}/records/{quoted(document)}/messages", MESSAGES)
        session = item.get("session", "")
        where = titles.get(session, f"conversation {session}" if session else "")
        head = f"{_day(item)}  {where}"
        if head != before:
            console.print(Text(f"  {head}", style="bold cyan"))
        before = head
        console.print(Padding(_quote(item, messages), (0, 0, 1, 4)))


def _quote(item: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> "RenderableType":
    said = Table.grid(padding=(0, 2))
    said.add_column(style="green", no_wrap=True)
    said.add_column(overflow="fold")
    for line in lines(item["text"], messages):
        said.add_row(Text(line.who), Text(line.said))
    proof = Text(f"proof: {item['id']}, sha256 {item['sha256'][:SHORT_SHA]}…", style="dim")
    return Group(said, proof)


def lines(text: str, messages: Sequence[Mapping[str, Any]]) -> list[Line]:
    """A record's text as who said what. The text of a conversation is its heading and a line for each message, or for a
    piece of one (memory-agent.md §1.2); the messages tell where a role ends and words begin."""
    if not messages:
        return [Line("", text)]
    said = [(message["role"], " ".join(f"{message['role']}: {message['content']}".split())) for message in messages]
    _, _, body = text.partition("\n")
    found: list[Line] = []
    for line in body.split("\n"):
        who = next((role for role, whole in said if whole.startswith(line)), None)
        found.append(Line("", f"… {line}") if who is None else Line(who, line[len(who) + 2 :]))
    return found


def _day(item: Mapping[str, Any]) -> str:
    moment = item.get("eventAt") or item.get("date")
    if not moment:
        return "undated"
    day = datetime.fromisoformat(moment)
    return f"{day.day} {day:%B %Y}"
