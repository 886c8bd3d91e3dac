"""Two machines with one run, and the S3 between them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.programs import saved
from tests.programs.run_program import Ended
from tests.programs.s3_world import URI, World

MANIFEST = "PUT .*/iter_0000500/manifest.json"


@dataclass(frozen=True)
class Pair:
    """Two directories that share a run in S3."""

    sync: Callable[..., Ended]
    s3: World
    near: Path
    far: Path

    def is_whole(self) -> bool:
        """Tell whether what was pushed can be verified and pulled, byte for byte."""
        self.s3.heal()
        assert self.sync("verify", self.near, URI).code == 0
        assert self.sync("pull", self.far, URI).code == 0
        pulled, pushed = (path / "iter_0000500" for path in (self.far, self.near))
        return saved.content(pulled) == saved.content(pushed)
