"""What `app.py` and `python -m charts` share: the cluster file, and how they end."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from megatron_eks import DEFAULT_CLUSTER
from megatron_eks.config.errors import ConfigError, Finding, has_errors
from megatron_eks.config.messages import messages
from megatron_eks.folders import refuse_folder_of_another
from megatron_eks.programs.printable import guarded
from megatron_eks.project import Project, load_project

FAILED, USAGE, INTERRUPTED = 1, 2, 130

_OF_NODES_FILES = re.compile(r"Error: E[A-Z]+: ")


@guarded()
def run(
    render: Callable[[Project, Path], Iterable[Finding]],
    program: str,
    output: tuple[str, str],
    cluster_file: str | None = None,
    *,
    code: bool = False,
) -> int:
    """Load the project, render it, print findings on stderr; return 2 if one is an error.

    `output` is the variable that names the folder to write to, and what it is called beside the
    cluster file. `code` says whether programs of jobs are rendered too.
    """
    argparse.ArgumentParser(
        prog=program,
        description=sys.modules[render.__module__].__doc__,
        epilog=f"It reads the cluster file that CLUSTER_CONFIG names, or else {DEFAULT_CLUSTER}.",
    ).parse_args()
    path = Path(cluster_file or os.environ.get("CLUSTER_CONFIG") or DEFAULT_CLUSTER)
    try:
        project = load_project(path, datetime.now(tz=UTC).date(), code=code)
        variable, name = output
        folder = Path(os.environ.get(variable) or path.with_name(name))
        refuse_folder_of_another(project, folder)
    except ConfigError as error:
        return _report(error.findings)
    try:
        return _report((*project.warnings, *render(project, folder)))
    except (OSError, RuntimeError) as error:
        # jsii has one class for all errors of JavaScript; Node's of files begin with their name.
        if isinstance(error, RuntimeError) and not _OF_NODES_FILES.match(str(error)):
            raise
        remedy = "check the path, its permissions and free space"
        sys.stderr.write(f"cannot write the result: {error} - {remedy}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _report(findings: Iterable[Finding]) -> int:
    """Print findings, the errors first."""
    ordered = sorted(findings, key=lambda finding: finding.level != "error")
    sys.stderr.write(messages(ordered, sys.stderr))
    return USAGE if has_errors(ordered) else 0
