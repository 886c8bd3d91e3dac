"""The demo's cluster runs on programs that are built once for each machine."""

import os
import sys

import pytest

from megatron_eks.localcloud.kubernetes import build


@pytest.fixture(scope="session")
def programs():
    """Build what this machine lacks, with progress that pytest's capturing does not hide."""
    return build.programs(os.environ, lambda line: print(line, file=sys.__stderr__, flush=True))
