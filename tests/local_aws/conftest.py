"""One local AWS for the tests of a module, and the real command lines against it."""

import sys

import pytest

from megatron_eks.local.aws.server import local_aws


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    """Return a local AWS that nobody has used."""
    with local_aws(tmp_path_factory.mktemp("aws"), sys.executable) as running:
        yield running
