"""Ctrl-C of the commands that run the stack."""

import logging
import os
import signal

import pytest

from api.cli.interrupts import Interrupts


class Asking(logging.Handler):
    """Ctrl-C comes while a line is logged, under the handler's lock."""

    def emit(self, record: logging.LogRecord) -> None:
        del record
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def logger() -> logging.Logger:
    logger = logging.Logger("test-interrupts")
    logger.addHandler(Asking())
    return logger


def test_the_first_one_raises_and_the_next_ones_let_the_end_go_on() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.asked


def test_while_something_is_logged_it_waits_for_the_next_check(logger: logging.Logger) -> None:
    with Interrupts() as interrupts:
        logger.warning("a line")
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
