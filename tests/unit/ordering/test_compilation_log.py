"""Compilation is logged, once, and only of our own functions."""

import logging

import pytest
from numba import njit
from numba.core import event

from slackline.ordering import CompilationLogger


@pytest.fixture
def announce():
    listener = CompilationLogger()
    event.register("numba:compile", listener)
    yield listener
    event.unregister("numba:compile", listener)


def compile_one(module: str) -> None:
    def f(x):
        return x + 1

    f.__module__ = module
    njit(f)(1)


def test_the_first_compilation_is_announced_and_the_next_are_not(announce, caplog):
    with caplog.at_level(logging.WARNING, "slackline"):
        compile_one("slackline.ordering.made_up")
        compile_one("slackline_soccer.made_up")
    lines = [record.getMessage() for record in caplog.records if record.name == "slackline"]
    assert len(lines) >= 1  # the listener of the package itself may have a say, too
    assert len(set(lines)) == 1
    assert announce.logged
    assert "python -m slackline.compile" in lines[0]


def test_functions_of_others_are_none_of_our_business(announce):
    compile_one("another.package")
    assert not announce.logged
