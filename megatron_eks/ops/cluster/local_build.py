"""`meks build --local`: the same steps as in CodeBuild, with docker or podman on this machine."""

import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from megatron_eks.build_context import stage
from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import outputs
from megatron_eks.ops.cluster.build import Wishes, ended
from megatron_eks.ops.cluster.build_causes import cause_of
from megatron_eks.ops.cluster.build_records import Records, digest_of
from megatron_eks.ops.failure import FAILED, NOT_FOUND, Failure
from megatron_eks.plan.cluster.builds import PROGRAM
from megatron_eks.plan.cluster.images import ImagePlan
from megatron_eks.project import ROOT

_ENGINES = ("docker", "podman")
_TAIL_LINES = 40


def run(images: Sequence[str], tools: Tools, wishes: Wishes) -> int:
    """Build, test and push the named images, or all; without repositories, build and test them."""
    engine = next((each for each in _ENGINES if shutil.which(each)), None)
    if engine is None:
        found = f"neither {' nor '.join(_ENGINES)} is on this machine"
        remedy = "install one, or build on AWS: meks build"
        raise Failure(Code.BUILD_FAILED, found, remedy, exit_code=NOT_FOUND)
    plan = tools.plan
    stack = tools.stacks.find(plan.stack("Images"))
    deployed = stack is not None and stack.made
    if not deployed:
        tools.console.say("no repositories are deployed, so nothing is pushed: meks deploy Images")
    chosen = [image for image in plan.images if not images or image.name in images]
    # What was built and what its tests said stays for a look; a temporary folder is nobody's.
    folder = Path(tempfile.mkdtemp(prefix="megatron-eks-build-"))
    failures, pushed = [], {}
    for image in chosen:
        uri, tag = image.repository, image.tag
        if stack is not None and deployed:
            title = image.name.capitalize()
            made = stack.outputs[f"{title}Image"]
            uri = made.rpartition(":")[0]
            tag = _free_tag(image, made, stack.outputs[f"{title}BuildProject"], tools)
            if not tag:
                tools.console.say(f"{image.name}: built already")
                continue
        build = _LocalBuild(replace(image, tag=tag), uri, engine, folder, tools)
        failure = build.run(wishes, push=deployed)
        if failure is not None:
            failures.append(failure)
        elif deployed:
            digest = digest_of(uri, {"imageTag": tag}, tools.aws.client("ecr"))
            pushed[f"{uri}:{image.tag}"] = f"{uri}@{digest}"
    tools.console.say(f"test reports: {folder / 'reports'}")
    if deployed:
        return ended(tools, failures, pushed)
    for failure in failures:
        tools.console.say(str(failure))
    return FAILED if failures else 0


def _free_tag(image: ImagePlan, deployed: str, project: str, tools: Tools) -> str:
    """Return the tag to push an image under; empty: it is built, as a record says."""
    repository, _, tag = deployed.rpartition(":")
    if tag == image.tag and Records(tools).find(image, deployed, project).digest is not None:
        return ""
    tagged = digest_of(repository, {"imageTag": image.tag}, tools.aws.client("ecr"))
    if tagged is not None and outputs.has(tools, f"{repository}@{tagged}"):
        return ""
    # What is there is somebody else's, for all that is known, and tags do not move.
    return image.tag if tagged is None else f"{image.tag}-{secrets.token_hex(4)}"


class _LocalBuild:
    """One image on its way through the steps."""

    def __init__(
        self, image: ImagePlan, repository: str, engine: str, folder: Path, tools: Tools
    ) -> None:
        self._image, self._repository, self._engine = image, repository, engine
        self._folder, self._tools = folder, tools
        self._source = folder / "source" / image.name

    def run(self, wishes: Wishes, *, push: bool) -> Failure | None:
        """Go through the steps; return why one failed."""
        environment = self._environment(wishes)
        # As CodeBuild gets it: where this package is installed, there is no checkout to build from.
        stage(ROOT, self._image.name, self._source)
        steps = ["check", "build", "test"]
        left = wishes.retries
        while steps or push:
            if not steps:
                push, steps = False, ["push"]
                self._log_in()
            code, tail = self._step(steps[0], environment)
            if code == 0:
                del steps[0]
                continue
            cause = cause_of(tail)
            failure = Failure(
                Code.BUILD_FAILED,
                cause.found if cause else (tail[-1] if tail else f"exit code {code}"),
                cause.remedy if cause else "look at the lines above",
                where=f"{steps[0]} of {self._image.name}",
            )
            if not left or cause is None or not cause.passes:
                return failure
            self._tools.console.say(f"{failure}; trying again, {left} tries are left")
            left -= 1
        return None

    def _environment(self, wishes: Wishes) -> Mapping[str, str]:
        return {
            **os.environ,
            "IMAGE_NAME": self._image.name,
            "REPOSITORY_URI": self._repository,
            "IMAGE_TAG": self._image.tag,
            "BUILD_ARGS": json.dumps(dict(self._image.build_args), sort_keys=True),
            "TEST_LEVEL": self._image.test_level,
            "TAG_STRATEGY": self._image.tag_strategy,
            **wishes.variables(self._image),
            "ENGINE": self._engine,
            "STATE": str(self._folder / f"{self._image.name}.json"),
            "REPORTS": str(self._folder / "reports"),
            # This command asks ECR itself, so the machine needs no AWS command line.
            "REGISTRY": "none",
        }

    def _step(self, step: str, environment: Mapping[str, str]) -> tuple[int, list[str]]:
        """Run one step, its output as it comes; return its exit code and last lines."""
        self._tools.console.say(f"{self._image.name}: {step}")
        tail: list[str] = []
        with subprocess.Popen(  # noqa: S603 -- this project's own program
            [sys.executable, PROGRAM, step],
            cwd=self._source,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as running:
            assert running.stdout is not None  # noqa: S101 -- a pipe was asked for
            for line in running.stdout:
                plain = "".join(char for char in line.rstrip() if char.isprintable())
                self._tools.console.say(f"  {plain}")
                tail = [*tail, plain][-_TAIL_LINES:]
        return running.returncode, tail

    def _log_in(self) -> None:
        """Give the engine ECR's password of twelve hours, through its standard input."""
        answer = self._tools.aws.client("ecr").get_authorization_token()
        token = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
        user, _, password = token.partition(":")
        registry = self._repository.partition("/")[0]
        done = subprocess.run(  # noqa: S603 -- the engine found on the path
            [self._engine, "login", "--username", user, "--password-stdin", registry],
            input=password,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            cause = cause_of(done.stderr.splitlines())
            found = f"{self._engine} login: {done.stderr.strip() or 'it failed'}"
            remedy = cause.remedy if cause else "see that your role may push to ECR"
            raise Failure(Code.BUILD_FAILED, found, remedy)
