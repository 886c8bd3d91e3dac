"""Every test runs on the Node of the environment and draws the same examples each time.

New examples are drawn by `pytest --hypothesis-profile=default`: what they find then fails for
the person who looks for it, and not for the next one who changes something else.
"""

import signal

import pytest
from hypothesis import settings

from megatron_eks import nodejs

nodejs.use_bundled_node()
# A shell that starts the tests in the background lets them ignore Ctrl-C, nohup the end of the
# terminal, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
settings.register_profile("repeated", derandomize=True)
settings.load_profile("repeated")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares a control plane or a local AWS, else the tests of one file."""
    for item in items:
        folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
        together = folder if folder in {"local", "local_aws"} else str(item.path)
        item.add_marker(pytest.mark.xdist_group(together))
