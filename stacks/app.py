"""What `app.py` runs: the stacks of a cluster file, written as a cloud assembly, and the guards."""

import atexit
import gc
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

gc.disable()  # a million objects of the imports below live until the end: nothing to look for

from megatron_eks import node

# What Node loads a part of the CDK for: the assembly's, and a resource of each service.
_CONSTANTS = {
    "cx_api.EnvironmentPlaceholders": "CURRENT_ACCOUNT",
    "aws_ec2.CfnVPC": "CFN_RESOURCE_TYPE_NAME",
    "aws_iam.CfnRole": "CFN_RESOURCE_TYPE_NAME",
    "aws_s3.CfnBucket": "CFN_RESOURCE_TYPE_NAME",
    "aws_kms.CfnKey": "CFN_RESOURCE_TYPE_NAME",
    "aws_logs.CfnLogGroup": "CFN_RESOURCE_TYPE_NAME",
    "aws_eks.CfnCluster": "CFN_RESOURCE_TYPE_NAME",
    "aws_fsx.CfnFileSystem": "CFN_RESOURCE_TYPE_NAME",
    "aws_codebuild.CfnProject": "CFN_RESOURCE_TYPE_NAME",
    "aws_ecr.CfnRepository": "CFN_RESOURCE_TYPE_NAME",
}


def _load_cdk() -> None:
    """Let Node load the parts of the CDK that the stacks use, by asking for their constants."""
    import_module("aws_cdk")
    jsii = import_module("jsii")
    for name, constant in _CONSTANTS.items():
        # Python's own module of the part may be loading: the main thread imports it.
        jsii.sget(type(name, (), {"__jsii_type__": f"aws-cdk-lib.{name}"}), constant)


_node = [node.load_in_background(_load_cdk)]
"""Threads that wait for Node."""

# ruff: noqa: E402 -- Node starts before the imports that take as long
from megatron_eks import rendering
from megatron_eks.config.errors import Finding
from megatron_eks.guards.check import findings_for_templates
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import ROOT, TEMPLATE, TEMPLATES, Project

if TYPE_CHECKING:
    from aws_cdk import App

Add = Callable[["App", ClusterPlan], object]
"""What puts more stacks into the app."""

_OF_A_STACK = (".template.json", ".assets.json", ".metadata.json")


def render(project: Project, outdir: Path, add: Add | None = None) -> Iterable[Finding]:
    """Write the cloud assembly, and apply the guards to its templates."""
    # Not before the project is read, which is done while Node loads.
    import aws_cdk as cdk  # noqa: PLC0415 -- as above

    from megatron_eks.stacks.compose import build, refused_by_schema  # noqa: PLC0415 -- as above

    _node[0].join()
    outdir.mkdir(parents=True, exist_ok=True)  # a clearer error than Node's
    app = cdk.App(outdir=str(outdir), context=feature_flags(), analytics_reporting=False)
    # Without validation none is written, and that of an earlier synthesis would stay.
    (outdir / "validation-report.json").unlink(missing_ok=True)
    build(app, project.cluster, ROOT, project.file.parent)
    # The guards judge our templates, and not those of others.
    ours = {f"{stack.node.id}.template.json" for stack in app.node.children}
    if add:
        add(app, project.cluster)
    try:
        app.synth()
    except RuntimeError as error:
        # jsii has one class for all errors of JavaScript. The templates are written by then.
        if "ValidationFailed" not in str(error):
            raise
        return refused_by_schema(outdir)
    templates = [file for file in remove_stale(outdir) if file.name in ours]
    _node.append(node.stop_in_background())
    return findings_for_templates({str(file): file.read_text() for file in templates})


def feature_flags() -> Mapping[str, object]:
    """Return cdk.json's flags, which only the command line passes on by itself."""
    flags: Mapping[str, object] = json.loads((TEMPLATE / "cdk.json").read_text())["context"]
    return flags


def remove_stale(outdir: Path) -> list[Path]:
    """Delete what an earlier synthesis left behind; return the templates that were written."""
    manifest = (outdir / "manifest.json").read_text()
    for path in outdir.iterdir():
        if path.name.startswith("asset."):
            if not any(path.name in file.read_text() for file in outdir.glob("*.assets.json")):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif path.name.endswith(_OF_A_STACK) and path.name not in manifest:
            path.unlink()
    return sorted(outdir.glob("*.template.json"))


def main(add: Add | None = None) -> NoReturn:
    """Write the cloud assembly of the cluster file, and end the process with the result.

    `add` gets the app and the plan of the cluster, when our stacks are in it. It imports what it
    needs of the CDK itself: until it is called, Node is busy with loading ours.
    """
    context = json.loads(os.environ.get("CDK_CONTEXT_JSON", "{}"))
    write, out = partial(render, add=add), ("CDK_OUTDIR", TEMPLATES)
    status = rendering.run(write, "app.py", out, context.get("config"))
    for thread in _node:
        thread.join()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):
            stream.flush()
    # A million objects the operating system frees faster than Python.
    atexit._run_exitfuncs()  # noqa: SLF001 -- os._exit, which frees nothing, would leave them out
    os._exit(status)


if __name__ == "__main__":
    main()
