"""Options of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-cluster", action="store_true", help="leave clusters and stacks running, to look at them")
    parser.addoption("--reuse-cluster", action="store_true", help="e2e: take the stacks that --keep-cluster left")
