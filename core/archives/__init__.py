"""Conversation archives: read what other systems export, as `writeConversation` requests (contract.md, Archives)."""
