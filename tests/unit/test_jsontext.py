import hashlib
from time import thread_time

import pytest

from core.errors import InvalidRequest
from core.jsontext import SAFE_INTEGER, canonical, dumps, loads, quote, sha256_hex
from tests.fakes.corpus import REFUSED, TEXTS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, False, None], "aa": {}}, '{"a":[true,false,null],"aa":{},"b":1}'),
        # U+1F600 is D83D DE00 in UTF-16, before U+FB33; by code point it would be after.
        ({"\ufb33": 1, "😀": 2, "\u20ac": 3, "1": 4}, '{"1":4,"\u20ac":3,"😀":2,"\ufb33":1}'),
        (
            '\x00\x07\b\t\n\x0b\f\r\x1f"\\/\x7f\u2028é😀',
            '"\\u0000\\u0007\\b\\t\\n\\u000b\\f\\r\\u001f\\"\\\\/\x7f\u2028é😀"',
        ),
        (SAFE_INTEGER, "9007199254740991"),
        ([-SAFE_INTEGER, 0], "[-9007199254740991,0]"),
        # the table of RFC 8785, appendix B
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (-333333333.3333332, "-333333333.3333332"),
        (0.14, "0.14"),
        (2.0, "2"),
    ],
)
def test_canonical_form(value: object, text: str) -> None:
    assert canonical(value) == text


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_lone_surrogates_have_no_canonical_form(text: str) -> None:
    if "\0" in text:  # JSON can spell NUL; it is the store that cannot
        assert canonical({"a": text}) == '{"a":' + quote(text) + "}"
    else:
        with pytest.raises(ValueError, match="surrogates"):
            canonical({"a": text})
        with pytest.raises(ValueError, match="surrogates"):
            canonical({text: 1})


@pytest.mark.parametrize("value", [SAFE_INTEGER + 1, -(2**60), float("nan"), float("inf"), [1, {"a": float("-inf")}]])
def test_numbers_without_a_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match=r"2\^53|JSON form"):
        canonical(value)


@pytest.mark.parametrize("value", [{1: "a"}, {"é": {None: 1}}, {"a": {1, 2}}, b"bytes"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        canonical(value)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_written_reads_back(text: str) -> None:
    value = {"b": text, "a": [text]}
    assert loads(canonical(value).encode()) == value
    assert loads(dumps(value).encode()) == value
    assert loads(quote(text).encode()) == text


def test_dumps_keeps_the_order_of_keys_and_no_space() -> None:
    assert dumps({"b": 1, "a": "é"}) == '{"b":1,"a":"é"}'
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(float("nan"))


def test_sha256() -> None:
    assert sha256_hex("é") == sha256_hex("é".encode()) == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b"[Infinity]",
        b"1e999",
        b"1" * 5_000,
        b"[" * 100_000,
        b'{"a": "\xff"}',
        b'"\xed\xa0\xbd"',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\\x"}',
        b'{"a": "\\u12"}',
        b"{'a': 1}",
        b'{"a": "line\nbreak"}',
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="body: ") as caught:
        loads(body)
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ('{"é": nul}', "byte 7: a value is missing"),
        ('{"a" 1}', "byte 5: a colon is missing"),
        ('{"a": 1 "b"}', "byte 8: a comma or a closing bracket is missing"),
        ("{'a': 1}", "byte 1: a name in double quotes is missing"),
        ("[1] [2]", "byte 4: something follows its end"),
        ('{"a": "b', "byte 6: a string begins and does not end"),
        ('{"a": "\\x"}', "byte 7: a backslash begins no escape"),
        ('{"a": "\\u12"}', "byte 8: \\u wants four hexadecimal digits"),
        ('{"a": "b\nc"}', "byte 8: a string holds a raw line break"),
        ("\ufeff{}", "byte order mark"),
        ('["NaN", -Infinity]', "byte 8: -Infinity is no JSON value"),
        ('["1e999", -1e999]', "out of range at byte 10: -1e999"),
        ("[" + "9" * 5_000 + "]", "out of range at byte 1: " + "9" * 30 + "…"),
    ],
)
def test_a_fault_is_told_in_plain_words_with_its_byte(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        loads(text.encode(), "the file")
    assert refused.value.fields[0].field == "the file"
    assert told in refused.value.detail


def test_a_bad_number_behind_many_good_ones_is_found_in_one_pass() -> None:
    body = b"[" + b"1," * 250_000 + b"NaN]"
    began = thread_time()
    with pytest.raises(InvalidRequest, match="at byte 500001: NaN"):
        loads(body)
    assert thread_time() - began < 1, "a few hundredths of a second of CPU; the square of the length takes several"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "a"),
        ('[{"a": {}}, {"x": {"b": 1, "\\u0062": 2}}]', "b"),
        ('{"": 1, "": 2}', '""'),
        ('{"\\u0000\\ud800": 1, "\\u0000\\ud800": 2}', "\\x00\\ud800"),
        ("{" + ", ".join(f'"{n}": 0' for n in range(100_000)) + ', "7": 1}', "7"),
    ],
)
def test_a_key_that_one_object_has_twice_is_named(text: str, key: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        loads(text.encode())
    assert [(field.field, field.message) for field in refused.value.fields] == [
        (key, "is given twice in one object; send it once")
    ]
    assert loads(b'[{"a": 1}, {"a": {"a": 2}}]') == [{"a": 1}, {"a": {"a": 2}}]
