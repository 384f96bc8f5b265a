"""Whatever JSON is sent: a request that can be built and stored, or a refusal that can be sent."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidRequest, TooLarge
from core.jsontext import dumps
from core.records.build import build_conversation, build_write
from core.records.model import ConversationRequest, parse_batch
from tests.fakes.corpus import REFUSED, TEXTS

# Lone surrogates and NUL included: JSON can spell both.
STRINGS = st.one_of(
    st.text(st.characters(), max_size=20),
    st.sampled_from([*REFUSED.values(), *(text for text in TEXTS.values() if len(text) < 10_000)]),
    st.sampled_from(
        ["global", "project", "session", "daily", "s-1", "user", "2026-03-01T09:30:00Z", "2026-03-01T09:30:00"]
    ),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=5,
)
SCOPES = st.sampled_from(["global", "project", "session", "daily"])
GOOD = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=":\u2028\u2029"), min_size=1, max_size=30
)
COMMON = {
    "id": st.from_regex("[A-Za-z0-9-]{1,90}", fullmatch=True) | STRINGS,
    "source": STRINGS,
    "scope": SCOPES | STRINGS,
    "workspaceId": GOOD | STRINGS,
}
MESSAGE = st.fixed_dictionaries({"role": GOOD, "content": STRINGS}, optional={"at": STRINGS}) | ANYTHING
ITEM = st.one_of(
    st.fixed_dictionaries({"text": GOOD | STRINGS}, optional={**COMMON, "at": STRINGS, "sessionId": GOOD | STRINGS}),
    st.fixed_dictionaries({"messages": st.lists(MESSAGE, max_size=3), "sessionId": GOOD | STRINGS}, optional=COMMON),
    ANYTHING,
)


@given(st.lists(ITEM, min_size=1, max_size=2))
def test_accepted_and_built_or_refused_by_name(items: list[object]) -> None:
    refused, batch = None, None
    try:
        batch = parse_batch({"items": items})
    except (InvalidRequest, TooLarge) as error:
        refused = error
    if refused is not None:
        assert all(field.field.startswith("items[") for field in refused.fields)
        assert b"\\u0000" not in dumps(refused.as_json()).encode().replace(b"\\\\", b"")
    for item in batch.items if batch else ():
        build = build_conversation if isinstance(item, ConversationRequest) else build_write
        document = build(item, document_id="doc-1", accepted_at=datetime(2026, 1, 2, tzinfo=UTC))  # pyright: ignore
        for record in (document, *document.blocks):
            record.canonical.encode()
            assert "\\u0000" not in record.canonical.replace("\\\\", "")
