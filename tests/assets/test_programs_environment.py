"""The environment of the programs' tests against the pins of the images."""

import re
from pathlib import Path

from megatron_eks.catalog import pins

_LOCK = Path(__file__).parents[2] / "requirements/programs.txt"


def test_the_programs_are_tested_with_the_megatron_core_of_the_image() -> None:
    """A lock at another version would test code that no job runs."""
    (version,) = re.findall(r"^megatron-core==(\S+)", _LOCK.read_text(), re.MULTILINE)
    assert version == pins.MEGATRON_CORE_VERSION
