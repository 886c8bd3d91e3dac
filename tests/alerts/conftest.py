"""Prometheus's own tool."""

from pathlib import Path

import pytest

from tests.go_programs import PROMTOOL, built


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Return promtool, built once for this machine."""
    return built(*PROMTOOL)
