"""JSON as text: the canonical form that records are hashed in, and the compact form of job payloads."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import cast

from core.errors import InvalidRequest

SAFE_INTEGER = 2**53 - 1
"""Beyond this an integer is not exact in every JSON reader (RFC 8785 §3.2.2.3 writes numbers as doubles)."""

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


def loads(body: bytes) -> object:
    """The JSON value of a UTF-8 body. Raises InvalidRequest, naming `body`, for anything that is not strict JSON."""
    try:
        return json.loads(body.decode(), parse_constant=_no_constant, parse_float=_with_fraction)
    except UnicodeDecodeError as error:
        raise InvalidRequest.field("body", f"is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest.field("body", f"is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise InvalidRequest.field("body", "is nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits, or NaN
        raise InvalidRequest.field("body", f"is not JSON: {error}") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


def _with_fraction(digits: str) -> int | float:
    """JSON has one kind of number, so 3.0 is the integer 3."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:30]} is out of range")
    return int(number) if number.is_integer() and abs(number) <= SAFE_INTEGER else number


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
