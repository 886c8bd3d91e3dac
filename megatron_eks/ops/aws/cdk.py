"""The CDK's own command line: synthesis, uploads and change sets."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.session import Aws, if_there
from megatron_eks.ops.aws.stacks import Template
from megatron_eks.ops.failure import Failure
from megatron_eks.project import ROOT

_BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version"
_SECONDS = 1800
_TAIL_LINES = 4
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class Cdk:
    """The pinned `cdk`, for one cluster file and region."""

    cluster_file: Path
    region: str
    folder: Path
    """Where the cloud assembly goes."""

    def synth(self) -> None:
        """Write the cloud assembly that everything after this deploys."""
        self._run("synth", "-q", "--output", str(self.folder))

    def bootstrap(self, account: str) -> None:
        """Make what the CDK needs once in each account and region."""
        # It synthesises too, and must not do so into the checkout.
        self._run("bootstrap", f"aws://{account}/{self.region}", "--output", str(self.folder))

    def prepare(self, stack: str, change_set: str, *, import_existing: bool) -> None:
        """Upload what a stack needs and make a change set, which nobody has executed yet.

        Where nothing changes there is no change set afterwards.
        """
        more = ["--import-existing-resources"] if import_existing else []
        self._run(
            *("deploy", stack, "--app", str(self.folder), "--exclusively"),
            *("--method", "prepare-change-set", "--change-set-name", change_set),
            *("--require-approval", "never", *more),
        )

    def template(self, stack: str) -> Template:
        """Return a stack's template as it was synthesised."""
        return cast("Template", json.loads(self._template_file(stack).read_text()))

    def use(self, stack: str, template: Template) -> None:
        """Put another template in a stack's place.

        The CDK uploads a template under the hash of its content, and takes what stands there
        already for the same.
        """
        text = json.dumps(template, indent=1)
        assets = self.folder / f"{stack}.assets.json"
        name = self._template_file(stack).name
        files = json.loads(assets.read_text())["files"]
        old = next(key for key, file in files.items() if file["source"]["path"] == name)
        new = hashlib.sha256(text.encode()).hexdigest()
        self._template_file(stack).write_text(text)
        for path in (assets, self.folder / "manifest.json"):
            path.write_text(path.read_text().replace(old, new))

    def _template_file(self, stack: str) -> Path:
        return self.folder / f"{stack}.template.json"

    def _run(self, *arguments: str) -> None:
        beside = Path(sys.executable).with_name("cdk")
        program = str(beside) if beside.exists() else shutil.which("cdk")
        if program is None:
            found = "the CDK's command line is not installed"
            raise Failure(Code.CDK_FAILED, found, "run `make setup` in the checkout")
        done = subprocess.run(  # noqa: S603 -- the pinned command, with our own arguments
            [program, *arguments, "--no-color"],
            # Its cdk.json says how to synthesise.
            cwd=ROOT,
            env={
                **os.environ,
                "AWS_REGION": self.region,
                "CDK_DISABLE_CLI_TELEMETRY": "true",
                "CDK_DISABLE_VERSION_CHECK": "true",
                "CLUSTER_CONFIG": str(self.cluster_file.resolve()),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        if done.returncode:
            raise Failure(
                Code.CDK_FAILED,
                _reason((done.stdout + done.stderr).splitlines()),
                "correct it and run `meks deploy` again: what is done stays done",
                where=f"cdk {arguments[0]}",
            )


def is_bootstrapped(aws: Aws) -> bool:
    """Tell whether an account and region have the CDK's bucket and roles."""
    ask = aws.client("ssm").get_parameter
    return if_there(ask, "ParameterNotFound", Name=_BOOTSTRAP_VERSION) is not None


def _reason(lines: Sequence[str]) -> str:
    """Return the lines with an error in them, or the last ones."""
    plain = [_ANSI.sub("", line).strip() for line in lines]
    plain = [line for line in plain if line and not line.startswith("at ")]
    errors = [line for line in plain if re.search(r"error|fail|\u274c", line, re.IGNORECASE)]
    told = list(dict.fromkeys(errors or plain))
    return "; ".join(told[-_TAIL_LINES:]) or "ended without a word"
