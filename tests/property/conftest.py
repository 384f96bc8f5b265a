"""Hypothesis without a deadline an example: a busy machine is not a finding. The suite's own timeout still holds."""

from hypothesis import settings

settings.register_profile("muniment", deadline=None)
settings.load_profile("muniment")
