"""What pydantic says of a field that is wrong, in our own words: its own are for programmers."""

from collections.abc import Mapping
from typing import Any

MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request; remove it",
    "string_type": "must be a string",
    "string_unicode": "has a field whose name holds a lone surrogate; remove it",
    "list_type": "must be a list",
    "model_type": "must be a JSON object",
    "model_attributes_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "literal_error": "must be one of {expected}",
    "too_short": "has {actual_length} entries; send at least {min_length}",
    "too_long": "has too many entries; send at most {max_length}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "uuid_type": "must be a UUID",
    "uuid_parsing": "must be a UUID",
    "is_instance_of": "must be a UUID",
}


def plain(detail: Mapping[str, Any]) -> str:
    """What is wrong and what to send, of one entry of `ValidationError.errors()`."""
    message = MESSAGES.get(detail["type"])
    return detail["msg"] if message is None else message.format(**detail.get("ctx", {}))
