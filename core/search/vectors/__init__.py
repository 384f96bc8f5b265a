"""Vectors: filled by jobs after the writes, kept as rows by content, searched per store in memory."""
