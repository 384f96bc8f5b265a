"""Names by pattern (native.md §4.1), always the same for the same text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.search.entities import ENTITY_POINTS, entities, key, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I met LeBron at GitHub.", ["lebron", "github"]),
        ("MacBook and PostgreSQL, not Macbook", ["macbook", "postgresql"]),
        ("snakeCase iPhone foo_BarBaz", []),
        ("The API of NASA, by USAID.", ["api", "nasa", "usaid"]),
        ("THE AND GO USE OK A TOOLONGX", []),
        ("see src/main.go, `notes.txt` and (./run.sh)", ["src/main.go", "notes.txt", "./run.sh"]),
        ("in C:\\tmp\\a.csv", ["c:\\tmp\\a.csv"]),
        ("At 3.5 p.m. e.g. v2.0, i.e. so... U.S.", []),
        ("(https://example.org/a?b=c). Http://x.org/y!", ["https://example.org/a?b=c", "http://x.org/y"]),
        ("@anna-k and @_x, mail bob@example.org, @9", ["bob@example.org", "anna-k", "_x"]),
        ("我读了《三体》和「海 」,『空』", ["三体", "海", "空"]),
        ("We use Redis, redis and Docker in Go.", ["redis", "docker", "go"]),
        ("JSON JSON Json", ["json"]),
        ("", []),
    ],
)  # fmt: skip
def test_patterns(text: str, found: list[str]) -> None:
    assert entities(text) == found


def test_patterns_come_in_their_order() -> None:
    assert entities("Redis 《书》 @bob https://x.org/ a/b.py USA OpenAI") == [
        "openai", "usa", "a/b.py", "https://x.org/", "bob", "书", "redis",
    ]  # fmt: skip


def test_a_long_entity_is_compared_by_its_beginning() -> None:
    address = "https://example.org/" + "x" * 600
    assert entities(address) == [address[:ENTITY_POINTS]]


def test_words_that_may_be_known_names() -> None:
    assert words("Did Bo go to redis with Al and the API, X?") == ["did", "bo", "redis", "with", "al", "api"]


@given(st.text(alphabet=st.sampled_from("ab AB.c@/:《》_-9\n(h"), max_size=300))
def test_any_text_gives_distinct_keys(text: str) -> None:
    found = entities(text)
    assert len(set(found)) == len(found)
    assert all(entity and entity == key(entity) for entity in found)


def test_long_runs_take_no_long_time() -> None:
    for text in (
        "A" * 100_000,
        "Aa" * 50_000,
        "a." * 50_000,
        "@" * 100_000,
        "《" * 100_000,
        "https://" * 12_000,
        "-" * 100_000,
    ):
        entities(text)  # quadratic matching would not end within the test's time limit
