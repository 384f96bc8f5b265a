"""Every limit of a write, once, in the unit that contract.md (Operations, The record) gives it; the API shares them."""

import re

MIB = 1024 * 1024

BODY_BYTES = 16 * MIB
"""A whole request body, of a batch and of a conversation."""
TEXT_BYTES = 4 * MIB
"""A document: the text of memory.write, and the packed text of a conversation."""
CONTENT_BYTES = MIB
"""One message."""
BATCH_ITEMS = 1_000
MESSAGES = 10_000
DOCUMENT_ID = re.compile(r"[A-Za-z0-9-]{1,90}")
"""The blocks' ids add `-b<n>` and stay within the 100 points of a record's id."""
SOURCE_POINTS = 200
SCOPE_POINTS = 200
"""`workspaceId` and `sessionId`."""
ROLE_POINTS = 64

BLOCK_POINTS = 600
"""A block of memory.write."""
LINE_UNITS = 540
"""A conversation line is wrapped beyond this (memory-agent.md §1.2)."""
LINE_LEAST_UNITS = 270
"""It is wrapped at a space only if the space lies beyond this."""
CHUNK_UNITS = 600
"""The lines of a chunk, joined, and its heading without the colon."""

TITLE_POINTS = 80
"""The title of a written text."""
TITLE_UNITS = 300
"""Any record's title (memory-agent.md §1.1)."""
