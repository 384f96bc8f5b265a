"""Whole archives: our golden export, the demo's sample, and other people's exports when they are here."""

import json
from collections import Counter
from pathlib import Path

import pytest

from core.archives.model import Conversation, Part, Skipped
from core.archives.parts import parts
from core.archives.reader import open_archive
from core.errors import InvalidRequest
from core.records.model import parse_conversation

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/archives/chatgpt"
SAMPLE = ROOT / "workers/embedded/sample"
SHARED = ROOT.parent / "shared/data/archives/chatgpt"


def read(path: Path) -> tuple[list[Conversation], list[Part], list[Skipped]]:
    with path.open("rb") as stream:
        found = list(open_archive(stream, path.name))
    conversations = [item for item in found if isinstance(item, Conversation)]
    made = [part for conversation in conversations for part in parts(conversation)]
    return conversations, made, [item for item in found if isinstance(item, Skipped)]


def test_the_golden_export_gives_the_golden_parts() -> None:
    _, made, skipped = read(GOLDEN / "conversations.json")
    expected = json.loads((GOLDEN / "expected.json").read_text("utf-8"))
    assert [part.request() for part in made] == expected["parts"]
    assert [[s.item, s.where, s.reason] for s in skipped] == expected["skipped"]


def test_the_sample_of_the_demo_is_a_real_export() -> None:
    conversations, made, skipped = read(SAMPLE / "conversations.json")
    assert len(conversations) >= 7
    assert all(6 <= len(conversation.messages) <= 14 for conversation in conversations)
    assert {part.day.month for part in made if part.day} >= {2, 3, 4, 5, 6, 7}
    assert len(made) > len(conversations)  # one of them goes on next day
    assert Counter(s.reason for s in skipped) == {
        "hidden from the conversation": 9,
        "custom instructions": 3,
        "it is on an abandoned branch": 4,
        "image: only its place is kept": 1,
    }
    for part in made:
        parse_conversation(part.request())


def test_the_questions_of_the_demo_are_three() -> None:
    questions = (SAMPLE / "questions.txt").read_text("utf-8").splitlines()
    assert len(questions) == 3
    assert all(question.endswith("?") for question in questions)


# Counted by hand in the files: messages of each conversation, in order; then what is left out.
SHARED_COUNTS: dict[str, tuple[list[int], dict[str, int]]] = {
    "dsh-chat-import_chatgpt-export.json": ([3, 3, 1], {}),
    "made_modern_branches.json": (
        [3, 2],
        {
            "hidden from the conversation": 1,
            "custom instructions": 1,
            "image: only its place is kept": 1,
            "a call of a tool": 1,
            "the model's reasoning": 1,
            "it is on an abandoned branch": 2,
            "it has no mapping": 1,
        },
    ),
    "openwebui-importer_gpt_example.json": ([10], {"hidden from the conversation": 1, "custom instructions": 1}),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of other people's exports is not beside the project")
@pytest.mark.parametrize("name", SHARED_COUNTS)
def test_exports_of_others(name: str) -> None:
    conversations, made, skipped = read(SHARED / name)
    messages, left = SHARED_COUNTS[name]
    assert [len(conversation.messages) for conversation in conversations] == messages
    assert Counter(s.reason for s in skipped) == left
    assert len(made) == len(conversations)
    assert all(part.day for part in made)
    for part in made:
        parse_conversation(part.request())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of other people's exports is not beside the project")
def test_every_file_of_that_collection_is_tried() -> None:
    refused = SHARED / "openwebui-importer_invalid_unicode.json"  # no mapping anywhere: another system's shape
    assert {path.name for path in SHARED.glob("*")} == {*SHARED_COUNTS, refused.name}
    with refused.open("rb") as stream, pytest.raises(InvalidRequest, match="Supported: a ChatGPT export"):
        open_archive(stream, refused.name)
