from typing import NamedTuple

import pytest

from core.errors import TooLarge
from core.records.limits import TEXT_BYTES
from core.records.packing import may_be_too_large, pack
from core.text import units


class Said(NamedTuple):
    role: str
    content: str
    at: str | None = None


def line(length: int) -> Said:
    """A message whose line is `length` units."""
    return Said("u", "x" * (length - 3))


def lines(text: str) -> list[str]:
    return text.split("\n")[1:]


def test_the_published_vector() -> None:
    session = "x" * (41 - len("Conversation "))
    packed = pack([line(8), line(311), line(206), line(51)], session)
    assert units(packed.heading) == 41
    assert [units(chunk.text) for chunk in packed.chunks] == [570, 94]
    assert [chunk.messages for chunk in packed.chunks] == [(0, 1, 2), (3,)]


def test_headings() -> None:
    at = "2023-05-20T04:21:59.9+02:00"
    said = [Said("user", "hi"), Said("assistant", "hello", at), Said("user", "bye", "2020-01-01T00:00:00Z")]
    packed = pack(said, "s 1")
    assert packed.text == "Conversation s 1 on 2023/05/20 (Sat) 02:21:\nuser: hi\nassistant: hello\nuser: bye"
    assert packed.first_at is not None
    assert packed.first_at.isoformat() == "2023-05-20T02:21:59.900000+00:00"
    assert pack(said[:1], "s 1").text == "Conversation s 1:\nuser: hi"
    assert pack(said[:1], "s 1").first_at is None


def test_white_space_is_collapsed_javascripts_way() -> None:
    packed = pack([Said("user", "\u00a0 a\n\n\tb\ufeff c\u0085\x1cd  "), Said("a", ""), Said("b", " \n ")], "s")
    assert lines(packed.text) == ["user: a b c\u0085\x1cd", "a:", "b:"]


def test_a_chunk_holds_600_units_with_its_heading() -> None:
    heading = units("Conversation s")
    fits = pack([line(300), line(600 - heading - 301)], "s")
    assert len(fits.chunks) == 1
    assert units(fits.text) == 602  # the heading's colon and line break are not counted
    assert len(pack([line(300), line(601 - heading - 301)], "s").chunks) == 2


def test_a_chunk_takes_one_line_however_long_its_heading() -> None:
    packed = pack([line(500), line(500)], "😀" * 200)
    assert [chunk.messages for chunk in packed.chunks] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("content", "pieces"),
    [
        ("x" * 537, [540]),
        ("x" * 538, [540, 1]),
        ("x" * 537 + " y", [540, 1]),  # the space is the 541st unit
        ("x" * 300 + " " + "y" * 300, [303, 300]),
        ("x" * 267 + " " + "y" * 600, [540, 331]),  # the space at 270 is too early
        ("x" * 268 + " " + "y" * 600, [271, 540, 60]),
        ("😀" * 268 + "xyz", [540, 2]),
        ("😀" * 300, [539, 64]),  # never half a pair
        ("x" + "😀" * 300, [540, 64]),
        ("😀" * 150 + " " + "😀" * 150, [303, 300]),
    ],
)
def test_wrapping(content: str, pieces: list[int]) -> None:
    packed = pack([Said("u", content)], "s")
    wrapped = [piece for chunk in packed.chunks for piece in lines(chunk.text)]
    assert [units(piece) for piece in wrapped] == pieces
    assert "".join(wrapped).replace(" ", "") == f"u:{content}".replace(" ", "")


def test_chunks_locate_themselves_in_the_text() -> None:
    said = [Said("user", f"书 {n} 😀 " * 30, None) for n in range(20)]
    packed = pack(said, "sé")
    whole = packed.text.encode()
    assert len(packed.chunks) > 5
    assert all(whole[chunk.start : chunk.end] == chunk.text.encode() for chunk in packed.chunks)
    assert packed.text == "\n\n".join(chunk.text for chunk in packed.chunks)


def test_a_message_that_spans_chunks_is_in_each() -> None:
    packed = pack([Said("a", "start"), Said("b", "word " * 400), Said("c", "end")], "s")
    assert [chunk.messages for chunk in packed.chunks] == [(0, 1), (1,), (1,), (1, 2)]


def test_a_packed_text_over_4_mib_is_too_large() -> None:
    said = [Said("u", "x" * 1_000_000)] * 4
    assert len(pack(said, "s").text) <= TEXT_BYTES
    said.append(Said("u", "y" * 200_000))
    assert may_be_too_large(said, "s")
    with pytest.raises(TooLarge, match="4 MiB"):
        pack(said, "s")


def test_white_space_does_not_count_against_the_limit() -> None:
    said = [Said("u", " " * 1_000_000)] * 16
    assert may_be_too_large(said, "s")
    assert len(pack(said, "s").text) < 100


def test_small_conversations_are_known_to_fit() -> None:
    assert not may_be_too_large([Said("user", "x" * 300)] * 8_000, "session-1")
