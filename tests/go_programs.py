"""Programs that tests build from Go modules, once for each machine."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from megatron_eks.localcloud.kubernetes.build import cache_folder

_TESTS = Path(__file__).parent
ETCD = (_TESTS / "programs" / "etcd_server", ".")
PROMTOOL = (
    _TESTS / "alerts" / "promtool",
    # Without clients of all clouds a build takes a third of the time.
    "-tags=remove_all_sd",
    "github.com/prometheus/prometheus/cmd/promtool",
)
_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}


def built(module: Path, *arguments: str) -> Path:
    """Return the program of a module, whose folder says by its files what is built."""
    content = b"".join(each.read_bytes() for each in sorted(module.iterdir()))
    key = hashlib.sha256(content + repr(arguments).encode()).hexdigest()[:20]
    program = cache_folder(os.environ) / module.name / key
    if not program.exists():
        go = shutil.which("go")
        assert go, "no Go - run `make setup-dev`"
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}")
        command = [go, "build", f"-o={partial}", *arguments]
        subprocess.run(command, cwd=module, env={**os.environ, **_SETTINGS}, check=True)  # noqa: S603 -- Go
        partial.replace(program)
    return program


if __name__ == "__main__":
    for each in (ETCD, PROMTOOL):
        built(*each)
