"""Options of campaigns: how many, of which scheme, on which network."""

from __future__ import annotations

import pytest

from tests.chaos.schemes import eager, machines, networks_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaigns", type=int, help="campaigns of each scheme")
    parser.addoption("--scheme", action="append", help="default: one for each kind of daemon")
    parser.addoption("--network", help="default: the smallest that the scheme can route")


@pytest.fixture
def campaigns(pytestconfig: pytest.Config) -> int | None:
    """Return the number of campaigns that the user asks for; None for that of the test."""
    return pytestconfig.getoption("--campaigns", None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with `routing` and `spec` for each scheme."""
    if {"routing", "spec"} <= set(metafunc.fixturenames):
        names = metafunc.config.getoption("--scheme", None) or machines()
        network = metafunc.config.getoption("--network", None)
        cells = [(eager(name), network or networks_of(eager(name))[0]) for name in names]
        metafunc.parametrize(("routing", "spec"), cells, ids=names)
