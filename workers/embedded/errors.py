"""What the launchers raise."""


class CannotStart(Exception):
    """An embedded server cannot run here. The message is for the person at the terminal and says what to do."""
