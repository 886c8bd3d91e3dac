"""Every test runs on the Node of the environment, however pytest was started."""

import pytest

from megatron_eks import entry

entry.use_bundled_node()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a person try every mutant: `pytest tests/mutation --mutants=all`."""
    parser.addoption("--mutants", choices=("all", "some"), default="some")
