"""Every test runs on the Node of the environment and draws the same examples each time.

New examples are drawn by `pytest --hypothesis-profile=default`: what they find then fails for
the person who looks for it, and not for the next one who changes something else.
"""

import signal

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from megatron_eks import node

SERVERS = {"aws", "s3", "server"}
"""Fixtures that start a local AWS or an S3."""

SHARING = {
    "tests/annex/aws/": "local AWS",
    "tests/annex/": "control plane",
    "tests/baseline/": "rendered clusters",
    "tests/demo/": "control plane",
    "tests/guards/": "rendered clusters",
    "tests/integration/test_examples.py": "rendered clusters",
    "tests/programs/test_full_disk.py": "trained run",
    "tests/programs/test_train_fsdp": "trained run",
    "tests/slips/": "rendered clusters",
}
"""Files that share what takes long to start, by the beginning of their paths."""

node.use_bundled_node()
# A shell that starts the tests in the background lets them ignore Ctrl-C, nohup the end of the
# terminal, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
settings.register_profile("repeated", derandomize=True)
settings.load_profile("repeated")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker the tests of one file, or of all files that share something.

    `--dist loadgroup` would do, but xdist 3.8 does not know how pytest 9.2 names tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((what for start, what in SHARING.items() if file.startswith(start)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Share the tests out among the workers of `make test`."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what starts processes or servers out of `make test-core`."""
    for item in items:
        starts = {"subprocess", "command"} & vars(getattr(item, "module", object)).keys()
        if starts or SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("tools")
