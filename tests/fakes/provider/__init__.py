"""A model provider on loopback, to test against: real HTTP, scripted faults, and a log with its own prices."""

from tests.fakes.provider.server import Provider, Row, provider
from tests.fakes.provider.steps import Step

__all__ = ["Provider", "Row", "Step", "provider"]
