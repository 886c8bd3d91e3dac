"""One local AWS for all tests here: they keep to stacks, or regions, of their own."""

import sys

import pytest

from megatron_eks.local.aws.server import local_aws


@pytest.fixture(scope="session")
def aws(tmp_path_factory):
    """Return a running local AWS; its start takes longer than most tests."""
    with local_aws(tmp_path_factory.mktemp("aws"), sys.executable) as running:
        yield running
