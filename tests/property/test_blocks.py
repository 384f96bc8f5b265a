from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from core.jsontext import canonical, loads, sha256_hex
from core.records.blocks import split
from core.records.build import build_write
from core.records.model import parse_write
from core.text import SPACES

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
LONG = st.one_of(
    TEXT,
    st.lists(TEXT, min_size=1, max_size=80).map("".join),
    st.lists(st.sampled_from(["word ", "😀", "书\n", "x" * 250, "é" * 601, "\u3000"]), min_size=1, max_size=60).map(
        "".join
    ),
)
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


@given(LONG)
def test_blocks_tile_the_bytes(text: str) -> None:
    whole = text.encode()
    spans = split(text)
    assert b"".join(whole[span.start : span.end] for span in spans) == whole
    assert [span.text for span in spans] == [whole[span.start : span.end].decode() for span in spans]
    assert all(0 < len(span.text) <= 600 for span in spans)


@given(LONG)
def test_blocks_break_at_white_space_where_they_can(text: str) -> None:
    spans = split(text)
    for span in spans[:-1]:
        if any(c in SPACES for c in span.text):
            assert span.text[-1] in SPACES
        else:
            assert len(span.text) == 600


@given(
    LONG,
    st.fixed_dictionaries(
        {},
        optional={
            "source": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
            "workspaceId": NAME,
            "sessionId": NAME,
            "at": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
            "scope": st.sampled_from(["global", "daily"]),
        },
    ),
)
def test_records_written_by_hand_are_canonical(text: str, more: dict[str, str]) -> None:
    request = parse_write({"text": text, **more})
    document = build_write(request, document_id="doc-1", accepted_at=datetime(2026, 1, 2, tzinfo=UTC))
    for record in (document, *document.blocks):
        assert record.canonical == canonical(loads(record.canonical.encode()))
        assert record.sha256 == sha256_hex(record.canonical)
    assert "".join(block.content for block in document.blocks) == text
