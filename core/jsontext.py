"""JSON as text: the canonical form that records are hashed in, and the compact form of job payloads."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import cast

from core.errors import InvalidRequest

SAFE_INTEGER = 2**53 - 1
"""Beyond this an integer is not exact in every JSON reader (RFC 8785 §3.2.2.3 writes numbers as doubles)."""
SHOWN = 30
"""Of a number that is refused, characters in the message."""
KEY_POINTS = 80

_sorted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def canonical(value: object) -> str:
    """`value` in the form of RFC 8785 (JCS).

    Takes str, int, float, bool, None, lists and dicts with string keys. Raises ValueError for what has no such form
    (lone surrogates, NaN, infinities, integers beyond 2^53 − 1) and TypeError for any other type.
    """
    # Python's own encoder writes strings just so, but sorts keys by code point and spells floats its own way. For
    # values with neither floats nor keys where the two orders could differ, it is right and several times faster.
    text = _sorted(value) if _is_plain(value) else _write(value)
    if not text.isascii():
        text.encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate
    return text


def quote(text: str) -> str:
    """`text` as a JSON string in the form of RFC 8785 (JCS): only what must be escaped is."""
    return json.encoder.encode_basestring(text)


def sha256_hex(data: str | bytes) -> str:
    """SHA-256 as 64 lower-case hex digits; text is hashed as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def dumps(value: object) -> str:
    """Compact JSON that keeps the order of keys; for job payloads and answers, never for hashes."""
    return _compact(value)


def loads(body: bytes, name: str = "body") -> object:
    """The JSON value of UTF-8 text. Raises InvalidRequest for anything that is not strict JSON: it names `name` and the byte,
    or the key that one object has twice (readers differ in which of the two they believe, RFC 8259 §4)."""
    try:
        return _parse(body.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequest.field(name, f"is not UTF-8 (at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest.field(name, _syntax(error)) from None
    except RecursionError:
        raise InvalidRequest.field(name, "is nested too deeply") from None
    except ValueError:  # a number or constant that Python's reader passed to us, or could not take itself
        raise InvalidRequest.field(name, _bad_token(body.decode())) from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))
    shown = twice[:KEY_POINTS] if twice.isprintable() else twice[:KEY_POINTS].encode("unicode_escape").decode()
    raise InvalidRequest.field(shown or '""', "is given twice in one object; send it once")


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _with_fraction(digits: str) -> int | float:
    """JSON has one kind of number, so 3.0 is the integer 3."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(digits[:SHOWN])
    return int(number) if number.is_integer() and abs(number) <= SAFE_INTEGER else number


_parse = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_with_fraction
).decode  # made once: making one costs more than reading a short body


def _syntax(error: json.JSONDecodeError) -> str:
    if not error.doc.strip(" \t\r\n"):
        return "is empty; send JSON"
    byte = _byte(error.doc, error.pos)
    if error.doc.startswith("\ufeff"):
        return "begins with a byte order mark; send it without"
    if error.msg.startswith("Unterminated string"):
        return f"is not JSON at byte {byte}: a string begins and does not end"
    if error.pos >= len(error.doc):
        return f"is not JSON at byte {byte}: it breaks off"
    why = next((plain for raw, plain in _SYNTAX.items() if error.msg.startswith(raw)), "it cannot be read")
    return f"is not JSON at byte {byte}: {why}"


_SYNTAX = {
    "Expecting value": "a value is missing or misspelt",
    "Expecting property name": "a name in double quotes is missing",
    "Expecting ':'": "a colon is missing",
    "Expecting ','": "a comma or a closing bracket is missing",
    "Illegal trailing comma": "a comma has nothing behind it",
    "Extra data": "something follows its end",
    "Invalid control character": "a string holds a raw line break or control character (write \\n)",
    "Invalid \\escape": "a backslash begins no escape that JSON knows",
    "Invalid \\uXXXX": "\\u wants four hexadecimal digits",
}
"""What Python's reader says, and what we say."""


def _bad_token(text: str) -> str:
    """Python's reader does not say where a number was that it could not take: the first such token, outside of strings."""
    for token in _TOKEN.finditer(text):
        digits = token[0]
        if digits[0] == '"':
            continue
        if digits.lstrip("-").isalpha():
            return f"is not JSON at byte {_byte(text, token.start())}: {digits} is no JSON value"
        try:
            if digits.lstrip("-").isdigit():
                int(digits)
            else:
                _with_fraction(digits)
        except ValueError:
            shown = digits[:SHOWN] + "…" * (len(digits) > SHOWN)
            return f"holds a number out of range at byte {_byte(text, token.start())}: {shown}"
    return "is not JSON"


def _byte(text: str, at: int) -> int:
    return len(text[:at].encode())


_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|NaN|-?Infinity|-?\d[\d.eE+-]*', re.DOTALL)


def _is_plain(value: object) -> bool:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return -SAFE_INTEGER <= cast("int", value) <= SAFE_INTEGER
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str or not key.isascii() or (type(item) is not str and not _is_plain(item)):
                return False
        return True
    if kind is list:
        return all(map(_is_plain, cast("list[object]", value)))
    return False


def _write(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int():
            if abs(value) > SAFE_INTEGER:
                raise ValueError(f"the integer {value} is beyond 2^53 - 1")
            return str(int(value))
        case float():
            return _number(value)
        case list() | tuple():
            items = cast("list[object]", value)
            return "[" + ",".join(map(_write, items)) + "]"
        case Mapping():
            return _write_object(cast("Mapping[object, object]", value))
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_object(value: Mapping[object, object]) -> str:
    keys: list[str] = []
    for key in value:
        if not isinstance(key, str):
            raise TypeError("keys of JSON objects are strings")
        keys.append(key)
    keys.sort(key=lambda key: key.encode("utf-16-be"))
    return "{" + ",".join(f"{quote(key)}:{_write(value[key])}" for key in keys) + "}"


def _number(value: float) -> str:
    """A double as ECMAScript's Number::toString spells it: the shortest digits that read back as the same double."""
    if not math.isfinite(value):
        raise ValueError("NaN and infinities have no JSON form")
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS × 10^point.
    point = len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    if 0 < point <= 21:
        return sign + (digits[:point] + "." + digits[point:] if len(digits) > point else digits.ljust(point, "0"))
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
