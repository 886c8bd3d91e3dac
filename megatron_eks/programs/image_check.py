"""Looks for what this project's programs need of an image of the user's; no GPU is needed.

image_check [--launcher PROGRAM] [--efa]

Python 3.11 is what it runs on itself. torch and torchrun have to be there. Warnings: boto3 where S3
is used, what kinds fsdp and ddp import, and with --efa NCCL's plugin, or ranks on several nodes
fall back to TCP.

Exit codes: 0 nothing is missing, 2 the image lacks something.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.program import Finding, Report, usage_error


def missing(launcher: str) -> Iterator[Finding]:
    """Yield what no rank can start without."""
    if shutil.which(launcher) is None:
        found = "no such program in the image"
        yield usage_error(launcher, found, "install torch, or set runtime.torchrun_path")
    elif find_spec("torch") is None:
        found = f"the image's {sys.executable} has no torch"
        remedy = "put the Python that has it first in PATH, or install it there"
        yield usage_error("torch", found, remedy)


def main(argv: Sequence[str], report: Report) -> None:
    """Look, and tell the versions."""
    parser = program.parser(__doc__)
    parser.add_argument("--launcher", default="torchrun", metavar="PROGRAM", help="starts ranks")
    parser.add_argument("--efa", action="store_true", help="nodes have EFA")
    options = parser.parse_args(argv)
    report.collect(missing(options.launcher))
    if find_spec("boto3") is None:
        found = "not in the image: no copies to S3, and no program above 700 KiB"
        report.warning("boto3", found, "install it if jobs in this image need one of both")
    for package, lack in (("pydantic", "do not start"), ("tokenizers", "read no text")):
        if find_spec(package) is None:
            found = f"not in the image: kinds fsdp and ddp {lack}"
            report.warning(package, found, "install it if jobs of these kinds use this image")
    system = System(Path("/"), os.environ)
    if options.efa and system.nccl_plugin() is None:
        found = f"no {' or '.join(system.plugin_names())}: on several nodes NCCL falls back to TCP"
        report.warning("NCCL plugin", found, "install it with AWS's EFA installer")
    report.facts.update(python=platform.python_version())
    for name in ("torch", "boto3"):
        try:
            report.facts[name] = version(name)
        except PackageNotFoundError:
            report.facts[name] = None


if __name__ == "__main__":
    sys.exit(program.run("image_check", main, sys.argv[1:]))
