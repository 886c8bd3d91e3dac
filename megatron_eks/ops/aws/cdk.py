"""The CDK's own command line: synthesis, uploads and change sets."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from megatron_eks.config.codes import Code
from megatron_eks.localcloud.kubernetes.build import cache_folder
from megatron_eks.node import bundled_folder
from megatron_eks.ops.aws.session import Aws, if_there
from megatron_eks.ops.aws.stacks import Template
from megatron_eks.ops.failure import Failure
from megatron_eks.project import TEMPLATE
from megatron_eks.synthesis import templates_command

_BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version"
_SECONDS = 1800
_TAIL_LINES = 4
_QUIETLY = (
    "--loglevel=error",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--ignore-scripts",
)
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
        self._run("synth", "-q", "--output", str(self.folder), "--app", self._app())

    def bootstrap(self, account: str) -> None:
        """Make what the CDK needs once in each account and region."""
        # It synthesises too, and must not do so into the checkout.
        place = f"aws://{account}/{self.region}"
        self._run("bootstrap", place, "--output", str(self.folder), "--app", self._app())

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

    def _app(self) -> str:
        return shlex.join(templates_command(self.cluster_file))

    def _template_file(self, stack: str) -> Path:
        return self.folder / f"{stack}.template.json"

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 -- the pinned command, with our own arguments
            [*_command_line(), *arguments, "--no-color"],
            cwd=_folder(self.cluster_file),
            env={**_environment(self.cluster_file), "AWS_REGION": self.region},
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


def run(cluster_file: Path, words: Sequence[str]) -> int:
    """Let the user talk to the CDK's command line, and return its exit code."""
    app = ["--app", shlex.join(templates_command(cluster_file))]
    if {"--app", "-a"} & {*words}:
        app = []
    done = subprocess.run(  # noqa: S603 -- the pinned command; the words are the user's own
        [*_command_line(), *words, *app],
        cwd=_folder(cluster_file),
        env=_environment(cluster_file),
        check=False,
    )
    return done.returncode


def _folder(cluster_file: Path) -> Path:
    """Return where a cdk.json says how to synthesise: beside the cluster file, or ours."""
    folder = cluster_file.resolve().parent
    return folder if (folder / "cdk.json").exists() else TEMPLATE


def _environment(cluster_file: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "true",
        "CLUSTER_CONFIG": str(cluster_file.resolve()),
    }


def _command_line() -> list[str]:
    """Return the pinned command line: the checkout's, or one that is fetched when first needed."""
    beside = Path(sys.executable).with_name("cdk")
    if beside.exists():
        return [str(beside)]
    node = bundled_folder()
    assert node is not None  # noqa: S101 -- this package depends on it
    lock = (TEMPLATE / "package-lock.json").read_bytes()
    place = cache_folder(os.environ) / "cdk" / hashlib.sha256(lock).hexdigest()[:20]
    if not place.exists():
        _fetch(node, place)
    return [str(node / "bin" / "node"), str(place / "node_modules" / "aws-cdk" / "bin" / "cdk")]


def _fetch(node: Path, place: Path) -> None:
    """Install what the lock file names; it appears at its place as a whole."""
    sys.stderr.write(f"fetching the CDK's command line, once, into {place}\n")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        folder = Path(name, "whole")
        folder.mkdir()
        for file in ("package.json", "package-lock.json"):
            shutil.copy(TEMPLATE / file, folder)
        npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        done = subprocess.run(  # noqa: S603 -- the bundled npm
            [node / "bin" / "node", npm, "ci", *_QUIETLY],
            cwd=folder,
            # Networks with an inspecting proxy need the machine's own certificates.
            env={**os.environ, "NODE_USE_SYSTEM_CA": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            found = f"the CDK's command line cannot be fetched: {_reason(done.stderr.splitlines())}"
            raise Failure(Code.CDK_FAILED, found, "see that npm's registry can be reached")
        with suppress(OSError):  # another process has been faster
            folder.rename(place)


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
