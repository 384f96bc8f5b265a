"""Any Unicode in: the messages verbatim, and every word of them in the chunks, which tile the packed text."""

from hypothesis import given
from hypothesis import strategies as st

from core.records.model import Message
from core.records.packing import may_be_too_large, pack
from core.text import SPACES, collapse_spaces, units

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
CONTENT = st.one_of(
    WORDS,
    st.lists(WORDS, max_size=60).map(" ".join),
    st.tuples(st.sampled_from(["x", "😀", "书 ", "ab😀", "a " + "b" * 280]), st.integers(1, 900)).map(
        lambda p: p[0] * p[1]
    ),
)
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant", "tool 2", "书😀", "r" * 64]),
        content=CONTENT,
        at=st.sampled_from([None, "2023-05-20T02:21:00Z", "1999-12-31T23:59:59.5-11:00"]),
    ),
    min_size=1,
    max_size=12,
)
SESSIONS = st.sampled_from(["s", "session 7", "书" * 40, "😀" * 200])


def without_spaces(text: str) -> str:
    return text.translate(dict.fromkeys(map(ord, SPACES)))


@given(MESSAGES, SESSIONS)
def test_chunks_tile_the_text(messages: list[Message], session: str) -> None:
    packed = pack(messages, session)
    whole = packed.text.encode()
    at = 0
    for chunk in packed.chunks:
        assert chunk.start == at
        assert whole[chunk.start : chunk.end].decode() == chunk.text
        at = chunk.end + 2
    assert at == len(whole) + 2
    assert {whole[chunk.end : chunk.end + 2] for chunk in packed.chunks[:-1]} <= {b"\n\n"}
    assert not may_be_too_large(messages, session)


@given(MESSAGES, SESSIONS)
def test_nothing_but_white_space_is_lost_and_the_order_holds(messages: list[Message], session: str) -> None:
    packed = pack(messages, session)
    heading = f"{packed.heading}:\n"
    assert all(chunk.text.startswith(heading) for chunk in packed.chunks)
    lines = [line for chunk in packed.chunks for line in chunk.text.removeprefix(heading).split("\n")]
    said = "".join(f"{message.role}:{message.content}" for message in messages)
    assert without_spaces("".join(lines)) == without_spaces(said)
    assert all(0 < units(line) <= 540 for line in lines)
    assert all(line == collapse_spaces(line) for line in lines)


@given(MESSAGES, SESSIONS)
def test_a_chunk_is_over_600_units_only_for_a_single_line(messages: list[Message], session: str) -> None:
    packed = pack(messages, session)
    heading = f"{packed.heading}:\n"
    for chunk in packed.chunks:
        lines = chunk.text.removeprefix(heading)
        assert units(lines) + units(packed.heading) <= 600 or "\n" not in lines
    for chunk, after in zip(packed.chunks, packed.chunks[1:], strict=False):
        first = after.text.removeprefix(heading).split("\n", 1)[0]
        assert units(f"{chunk.text}\n{first}") - 2 > 600  # it would not have fitted


@given(MESSAGES, SESSIONS)
def test_each_message_is_found_in_the_chunks_that_name_it(messages: list[Message], session: str) -> None:
    packed = pack(messages, session)
    named = [index for chunk in packed.chunks for index in chunk.messages]
    assert named == sorted(named)
    assert set(named) == set(range(len(messages)))
    for index, message in enumerate(messages):
        texts = [chunk.text for chunk in packed.chunks if index in chunk.messages]
        words = without_spaces(f"{message.role}:{message.content}")
        joined = "".join(without_spaces(text.removeprefix(f"{packed.heading}:\n")) for text in texts)
        assert words in joined
