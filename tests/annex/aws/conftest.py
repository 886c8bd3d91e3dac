"""One local AWS for all tests here: they keep to stacks, or regions, of their own."""

import pytest

from tests.annex.aws.running import local_aws


@pytest.fixture(scope="session")
def aws(tmp_path_factory):
    """Return a running local AWS; its start takes longer than most tests."""
    with local_aws(tmp_path_factory.mktemp("aws")) as running:
        yield running
