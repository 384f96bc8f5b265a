"""ChatGPT conversations: which messages of a tree are the conversation, and what each becomes."""

import time
from collections.abc import Iterator, Mapping

import pytest

from core.archives.chatgpt import conversation, file_order
from core.archives.model import Conversation, Skipped
from core.archives.tree import Tree

Node = dict[str, object]


def node(parent: str | None, text: str | None = None, at: object = None, role: str = "user", **more: object) -> Node:
    if text is None and not more:
        return {"message": None, "parent": parent}
    content = {"content_type": "text", "parts": [text]}
    return {"parent": parent, "message": {"author": {"role": role}, "create_time": at, "content": content, **more}}


def read(mapping: object, **more: object) -> tuple[Conversation | None, list[Skipped]]:
    found = list(conversation({"id": "c", "mapping": mapping, **more}, "file, entry 1"))
    skipped = [item for item in found if isinstance(item, Skipped)]
    read = [item for item in found if isinstance(item, Conversation)]
    assert len(read) <= 1
    return (read[0] if read else None), skipped


def texts(mapping: object, **more: object) -> list[str]:
    found, _ = read(mapping, **more)
    return [message.content for message in found.messages] if found else []


def only(message: Mapping[str, object]) -> tuple[list[str], list[tuple[str, str]]]:
    """The contents and what was left out of a conversation of one node."""
    found, skipped = read({"m": {"parent": None, "message": message}})
    return [m.content for m in found.messages] if found else [], [(s.item, s.reason) for s in skipped]


BRANCHES = {
    "r": node(None),
    "q": node("r", "question", 10.0),
    "old": node("q", "old answer", 20.0),
    "old2": node("old", "old reply", None),
    "new": node("q", "new answer", 30.0),
}


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ("new", ["question", "new answer"]),
        ("old2", ["question", "old answer", "old reply"]),
        ("q", ["question"]),
        (None, ["question", "new answer"]),
        ("gone", ["question", "new answer"]),
        (7, ["question", "new answer"]),
    ],
)
def test_the_current_node_and_its_ancestors_are_the_conversation(current: object, expected: list[str]) -> None:
    assert texts(BRANCHES, current_node=current) == expected
    found, skipped = read(BRANCHES, current_node=current)
    assert found is not None
    assert len(found.messages) + len(skipped) == 4  # every message is kept or named
    assert {s.reason for s in skipped} == {"it is on an abandoned branch"}


def test_a_leaf_without_a_time_is_as_new_as_its_branch() -> None:
    mapping = {"a": node(None, "a", 10.0), "b": node("a", "b", 50.0), "c": node("b", "c"), "d": node("a", "d", 40.0)}
    assert texts(mapping) == ["a", "b", "c"]
    mapping = {"c2": node("b", "c2"), **mapping, "c3": node("b", "c3")}
    assert texts(mapping) == ["a", "b", "c3"]


def test_without_any_time_the_last_leaf_is_taken() -> None:
    assert texts({"a": node(None, "a"), "b": node("a", "b"), "c": node("a", "c")}) == ["a", "c"]


@pytest.mark.parametrize("current", ["a", "b", "c", None])
def test_cycles_end(current: str | None) -> None:
    ring = {"a": node("c", "a", 1.0), "b": node("a", "b", 2.0), "c": node("b", "c", 3.0)}
    assert sorted(texts(ring, current_node=current)) == ["a", "b", "c"]
    assert texts({"a": node("a", "alone", 1.0)}) == ["alone"]


def test_a_missing_parent_is_a_root_and_a_left_out_parent_cuts_nothing_off() -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    mapping = {"s": node("gone", "hidden", None, "system", metadata=hidden), "u": node("s", "kept", 5.0)}
    found, skipped = read(mapping)
    assert found is not None
    assert [m.content for m in found.messages] == ["kept"]
    assert [(s.where, s.reason) for s in skipped] == [("conversation c, message s", "hidden from the conversation")]


def test_the_newest_leaf_is_found_with_one_look_at_each_node() -> None:
    count, asked = 5_000, 0
    parents = {str(i): str(i - 1) if i else None for i in range(count)}
    parents |= {f"leaf{i}": str(i) for i in range(count)}  # as many leaves, none with a time

    def time_of(name: str) -> float:
        nonlocal asked
        asked += 1
        return 0.0

    assert len(Tree(parents, time_of).path(None)) == count + 1
    assert asked == 2 * count


IMAGE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}
AUDIO = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_2"}
SPOKEN = {"content_type": "audio_transcription", "text": "spoken words", "direction": "in"}


@pytest.mark.parametrize(
    ("content", "expected", "left"),
    [
        ({"content_type": "text", "parts": ["one", "", "two"]}, ["one\ntwo"], []),
        ({"content_type": "text", "parts": ["one", None]}, ["one"], []),
        ({"content_type": "text", "parts": []}, [], ["it is empty"]),
        ({"content_type": "text", "parts": None, "text": "alias"}, ["alias"], []),
        ({"content_type": "text", "parts": [], "text": "alias"}, ["alias"], []),
        ({"content_type": "text"}, [], ["it is empty"]),
        ({}, [], ["it is empty"]),
        (None, [], ["it is empty"]),
        ({"content_type": "multimodal_text", "parts": [IMAGE, "why?"]}, ["[image]\nwhy?"], ["image"]),
        ({"content_type": "multimodal_text", "parts": [IMAGE]}, ["[image]"], ["image"]),
        ({"content_type": "multimodal_text", "parts": [SPOKEN, AUDIO]}, ["spoken words\n[audio]"], ["audio"]),
        ({"content_type": "multimodal_text", "parts": [{"content_type": "new"}]}, ["[attachment]"], ["attachment"]),
        ({"content_type": "text", "parts": ["x", 5]}, ["x\n[attachment]"], ["attachment"]),
        ({"content_type": "code", "language": "python", "text": "1 + 1"}, ["1 + 1"], []),
        ({"content_type": "execution_output", "text": "2"}, ["2"], []),
        ({"content_type": "user_editable_context", "user_profile": "x"}, [], ["custom instructions"]),
        ({"content_type": "thoughts", "thoughts": [{"content": "x"}]}, [], ["the model's reasoning"]),
        ({"content_type": "reasoning_recap", "content": "x"}, [], ["the model's reasoning"]),
        ({"content_type": "tether_quote", "text": "x"}, [], ["content of another kind"]),
    ],
)  # fmt: skip
def test_content(content: object, expected: list[str], left: list[str]) -> None:
    kept, skipped = only({"author": {"role": "user"}, "content": content})
    assert kept == expected
    reasons = [reason.removesuffix(": only its place is kept") for _, reason in skipped]
    assert reasons == (left if expected else [*left, "it has no message to import"])


def test_a_message_that_is_only_an_attached_file_is_not_lost() -> None:
    attached = {"attachments": [{"id": "file-9", "name": "lease\n2026.pdf"}, {"id": "file_1", "name": "seen.png"}, {}]}
    content = {"content_type": "multimodal_text", "parts": ["", IMAGE]}
    kept, skipped = only({"author": {"role": "user"}, "content": content, "metadata": attached})
    assert kept == ["[image]\n[file: lease 2026.pdf]\n[file: unnamed]"]
    assert [item for item, _ in skipped] == ["attachment"] * 3


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"recipient": "web.search"}, "a call of a tool"),
        ({"metadata": {"is_visually_hidden_from_conversation": True}}, "hidden from the conversation"),
        ({"recipient": "all", "metadata": {"is_visually_hidden_from_conversation": False}}, None),
        ({"recipient": None, "metadata": None}, None),
    ],
)
def test_tool_calls_and_hidden_messages_are_named(more: dict[str, object], reason: str | None) -> None:
    kept, skipped = only({"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["x"]}, **more})
    assert (kept, skipped[:1]) == (["x"], []) if reason is None else ([], [("message", reason)])


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("Paris \ue200cite\ue202turn0search1\ue202turn0news2\ue201.", "Paris."),
        ("See \ue200filecite\ue202turn1file0\ue201 there", "See there"),
        ("a \ue203highlight\ue204 and \ue205more\ue206", "a highlight and more"),
        ("cut \ue200cite\ue202turn0", "cut citeturn0"),
        ("lone \ud83d and \udc00", "lone \ufffd and \ufffd"),
        ("pair \ud83d\ude02", "pair 😂"),
        ("nul \x00", "nul \ufffd"),
        ("kept: \u200e\u202f\ufeff\ue207", "kept: \u200e\u202f\ufeff\ue207"),
    ],
)
def test_texts_are_storable_and_otherwise_kept(raw: str, kept: str) -> None:
    assert texts({"m": node(None, raw)}) == [kept]
    kept.encode()


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("at", "iso"),
    [
        (1772440201, "2026-03-02T08:30:01+00:00"),
        (1772440201.25, "2026-03-02T08:30:01.250000+00:00"),
        *[(none, None) for none in (None, 0, 0.0, -5, True, "", "2026-03-02", [])],
        *[(none, None) for none in (float("nan"), float("inf"), 1e300, 10**400, 253402300800)],
    ],
)
@pytest.mark.usefixtures("far_from_greenwich")
def test_times(at: object, iso: str | None) -> None:
    found, _ = read({"m": node(None, "x", at)}, create_time=at)
    assert found is not None
    assert [t.isoformat() if t else None for t in (found.at, found.messages[0].at)] == [iso, iso]


def test_ids_come_from_the_export_and_else_from_the_content() -> None:
    message = {"m": node(None, "x", id="msg-1"), "n": node("m", "y")}

    def of(**entry: object) -> Conversation:
        [found] = [c for c in conversation({"mapping": message, **entry}, "f") if isinstance(c, Conversation)]
        return found

    assert [m.id for m in of(id="a").messages] == ["msg-1", "n"]
    assert of(id="a", conversation_id="b").id == "b"
    assert of(id="a", conversation_id=None).id == of(id="a", conversation_id="").id == "a"
    assert of().id == of().id != of(title="other").id
    for bad in ("x" * 201, "tab\t", "lone \ud800"):
        assert of(id=bad).id == of(id=bad).id != bad
        assert len(of(id=bad).id) == 36
    assert of(id="x" * 200).id == "x" * 200


@pytest.mark.parametrize("entry", [None, 5, "x", [], {}, {"mapping": None}, {"mapping": []}, {"id": "c", "title": "t"}])
def test_an_entry_without_a_mapping_is_named(entry: object) -> None:
    assert [(s.item, s.reason) for s in conversation(entry, "w") if isinstance(s, Skipped)] == [
        ("conversation", "it has no mapping")
    ]


@pytest.mark.parametrize("mapping", [{}, {"r": None}, {"r": 5}, {"r": {"message": None}}, {"r": {"parent": 5}}])
def test_a_conversation_without_messages_is_named(mapping: object) -> None:
    found, skipped = read(mapping)
    assert found is None
    assert [(s.item, s.where, s.reason) for s in skipped] == [
        ("conversation", "conversation c", "it has no message to import")
    ]


def test_the_files_of_an_export() -> None:
    names = ["conversations.json", "conversations-000.json", "export/conversations-010.json", "chat.html",
             "__MACOSX/._conversations.json", "shared_conversations.json", "conversations-x.json"]  # fmt: skip
    assert [file_order(name) for name in names] == [-1, 0, 10, None, None, None, None]
