"""Everything that the default cluster and its job emit, rendered once."""

import pytest

from tests.charts import rendered
from tests.charts.rendered import Manifest


@pytest.fixture(scope="session")
def platform() -> list[Manifest]:
    """Return the objects of the platform, after a deployment."""
    return rendered.platform()


@pytest.fixture(scope="session")
def job() -> Manifest:
    """Return the default job."""
    return rendered.only(rendered.jobs(), "PyTorchJob")


@pytest.fixture(scope="session")
def everything(platform: list[Manifest]) -> list[Manifest]:
    """Return all objects of all folders."""
    return [*platform, *rendered.validation(), *rendered.jobs(*rendered.shipped_jobs())]
