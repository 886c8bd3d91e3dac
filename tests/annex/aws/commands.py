"""Runs the project's command lines against a local AWS, offline and with an empty home."""

import os
import subprocess
from pathlib import Path

from megatron_eks.localcloud.aws.server import LocalAws

ROOT = Path(__file__).parents[3]
BIN = ROOT / ".venv" / "bin"
SECONDS = 300

# A proxy that nobody listens on: whatever leaves this machine fails at once.
_OFFLINE = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
)


def run(
    aws: LocalAws, region: str, home: Path, *command: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    base = {
        "HOME": str(home),
        "PATH": f"{BIN}{os.pathsep}/usr/bin{os.pathsep}/bin",
        # The templates of every example are validated elsewhere.
        "CDK_VALIDATION": "false",
        **_OFFLINE,
        **aws.environment(region),
    }
    return subprocess.run(  # noqa: S603 -- the project's own tools
        command,
        cwd=ROOT,
        env=base | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
