"""What an upload is in which no conversation was found: said in words, with what to do."""

from core.archives.container import Container, File
from core.archives.foreign import fields, label
from core.archives.splitter import BadItem, BrokenArray, first_items
from core.errors import InvalidRequest

SUPPORTED = (
    "a ChatGPT export: conversations.json, or the zip with conversations.json or conversations-000.json and so on"
)

_BOM, _SPACE = b"\xef\xbb\xbf", b" \t\r\n"
_HEAD_BYTES = 4096
_NAMED = 5  # names of files or fields, the most in a message
_SHOWN_BYTES = 20
_KINDS = (
    (b"\x1f\x8b", "is packed by gzip: unpack it first"),
    (b"7z\xbc\xaf", "is a 7z archive: unpack it first"),
    (b"Rar!", "is a RAR archive: unpack it first"),
    (b"%PDF", "is a PDF, not an export"),
    (b"\xff\xfe", "is UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text: save it as UTF-8"),
    (b"<", "is a web page, not an export: a download that needs a log-in gives one"),
)


def no_conversation(container: Container, files: list[File], looked_at: int) -> InvalidRequest:
    """Why none of `files`, nor anything else in the upload, can be imported; at most `looked_at` entries of each were read.

    The detail ends with what is supported. Raises InvalidRequest for a damaged zip."""
    if files:
        found = " ".join(f"{label(file.name)} {_what(container, file, looked_at)}." for file in files[:_NAMED])
    elif container.files:
        names = ", ".join(label(file.name) for file in container.files[:_NAMED])
        names = _cut(names, container.files)
        found = f"The zip holds {len(container.files)} files, and no conversations.json among them ({names})."
    else:
        found = "The zip is empty."
    return InvalidRequest(f"{found} Supported: {SUPPORTED}.")


def _what(container: Container, file: File, looked_at: int) -> str:
    with container.open(file) as stream:
        head = stream.read(_HEAD_BYTES)
    text = head.removeprefix(_BOM).lstrip(_SPACE)
    if not text:
        return (
            "is empty: export or download it again" if file.size <= len(head) else "begins with nothing but white space"
        )
    for magic, what in _KINDS:
        if text.startswith(magic):
            return what
    if text[:1] == b"{":
        return "is a JSON object, and an export is a list of conversations"
    if text[:1] != b"[":
        return f"is not JSON: it begins with {text[:_SHOWN_BYTES].decode('utf-8', 'replace')!r}"
    return _list(container, file, looked_at)


def _list(container: Container, file: File, looked_at: int) -> str:
    count, parsed, names = 0, 0, list[str]()
    bad: BadItem | None = None
    broken = ""
    with container.open(file) as stream:
        try:
            for item in first_items(stream, looked_at):  # one may be as large as MAX_ITEM_BYTES: none is kept
                count += 1
                if isinstance(item, BadItem):
                    bad = bad or item
                else:
                    parsed += 1
                    names = names or list(fields(item.value))[: _NAMED + 1]
        except BrokenArray as error:
            broken = str(error)
    if broken and not parsed:
        return f"is incomplete or damaged ({broken}): export or download it again"
    if bad is not None and not parsed:
        return f"cannot be read: entry {bad.index + 1} is {bad.reason}; export or download it again"
    if not count:
        return "is an empty list: there is no conversation in this export"
    shown = f" (fields: {_cut(', '.join(label(name) for name in names[:_NAMED]), names)})" if names else ""
    many = f"none of its first {count} entries is one" if count > 1 else "its only entry is none"
    return f"is a list, but not of ChatGPT's conversations: {many}{shown}"


def _cut(names: str, of: "list[str] | tuple[File, ...]") -> str:
    return f"{names} …" if len(of) > _NAMED else names
