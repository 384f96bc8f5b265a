"""The shapes of the imports' answers, for the OpenAPI document."""

from typing import Any

_INSTANT = {"type": "string", "format": "date-time"}
_NATURAL = {"type": "integer", "minimum": 0}
_REPORT = {
    "type": "object",
    "description": "`conversations` read; `documents` and their `messages` written; documents that were `alreadyThere`.",
    "properties": {
        **{name: _NATURAL for name in ("conversations", "documents", "messages", "alreadyThere", "failedDocuments")},
        "skipped": {"type": "array", "items": {"type": "object"}, "description": "`{reason, count, examples}`"},
        "failed": {"type": "array", "items": {"type": "object"}, "description": "`{document, error}`, at most 20"},
        "firstAt": _INSTANT,
        "lastAt": _INSTANT,
    },
}
IMPORT_SCHEMAS: dict[str, Any] = {
    "Import": {
        "title": "Import",
        "type": "object",
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "store": {"type": "string"},
            "state": {"enum": ["uploading", "ready", "running", "paused", "succeeded", "failed", "cancelled"]},
            "filename": {"type": "string"},
            "format": {"type": "string"},
            "size": _NATURAL,
            "received": _NATURAL,
            "job": {"type": "string", "format": "uuid"},
            "progress": {"type": "object"},
            "report": _REPORT,
            "error": {"$ref": "#/components/schemas/Problem"},
            **{name: _INSTANT for name in ("createdAt", "updatedAt", "finishedAt")},
        },
        "required": ["id", "store", "state", "size", "received", "createdAt", "updatedAt"],
    },
    "ImportPreview": {
        "title": "ImportPreview",
        "type": "object",
        "properties": {
            "format": {"type": "string"},
            "conversations": {"type": "array", "items": {"type": "object"}},
            "skipped": {"type": "array", "items": {"type": "object"}},
            "complete": {"type": "boolean"},
        },
        "required": ["format", "conversations", "skipped", "complete"],
    },
    "ImportResult": {
        "title": "ImportResult",
        "type": "object",
        "properties": {
            "importId": {"type": "string", "format": "uuid"},
            "state": {"enum": ["succeeded", "paused"]},
            "report": _REPORT,
        },
        "required": ["importId", "state", "report"],
    },
}
