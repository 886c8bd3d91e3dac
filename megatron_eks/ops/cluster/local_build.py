"""`meks build --local`: the same steps as in CodeBuild, with docker or podman on this machine."""

import base64
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
from megatron_eks.ops.aws.causes import cause_of
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import outputs
from megatron_eks.ops.cluster.build import chosen_of, ended, no_base, not_deployed, tag_variables
from megatron_eks.ops.cluster.build_records import BASE, Records, digest_of
from megatron_eks.ops.failure import FAILED, NOT_FOUND, Failure
from megatron_eks.own_images import stage_own
from megatron_eks.plan.cluster.images import ImagePlan
from megatron_eks.project import ROOT

_ENGINES = ("docker", "podman")
_TAIL_LINES = 40


def run(images: Sequence[str], tools: Tools) -> int:
    """Build, test and push the named images, or all; without repositories, build and test them."""
    engine, plan = _engine(), tools.plan
    stack = tools.stacks.find(plan.stack("Images"))
    deployed = stack is not None and stack.made
    if not deployed:
        tools.console.say("no repositories are deployed, so nothing is pushed: meks deploy Images")
    chosen = sorted(chosen_of(images, tools), key=lambda image: image.base is not None)
    # What was built and what its tests said stays for a look; a temporary folder is nobody's.
    folder = Path(tempfile.mkdtemp(prefix="megatron-eks-build-"))
    failures, pushed, made = [], {}, dict[str, str]()
    for image in chosen:
        uri, tag, base = image.repository, image.tag, made.get(image.base or "")
        if stack is not None and deployed:
            uri, tag = _free_tag(image, stack.outputs, tools)
            base = base or _built_base(image, stack.outputs, tools)
            if not tag:
                tools.console.say(f"{image.name}: built already")
                continue
        build = _LocalBuild(replace(image, tag=tag), uri, engine, folder, tools)
        lacks_base = image.base is not None and base is None
        failure = no_base(image) if lacks_base else build.run(base, push=deployed)
        if failure is not None:
            failures.append(failure)
            continue
        made[image.name] = f"{uri}:{tag}"
        if deployed:
            digest = digest_of(uri, {"imageTag": tag}, tools.aws.client("ecr"))
            pushed[f"{uri}:{image.tag}"] = f"{uri}@{digest}"
    tools.console.say(f"test reports: {folder / 'reports'}")
    if deployed:
        return ended(tools, failures, pushed)
    for failure in failures:
        tools.console.say(str(failure))
    return FAILED if failures else 0


def _engine() -> str:
    """Return the first engine that answers: docker may be here without its daemon."""
    said: list[str] = []
    for name in filter(shutil.which, _ENGINES):
        done = subprocess.run(  # noqa: S603 -- one of the two
            [name, "info"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return name
        said.append(f"{name} does not answer: {(done.stderr.splitlines() or [''])[-1]}")
    found = "; ".join(said) or f"neither {' nor '.join(_ENGINES)} is on this machine"
    remedy = f"{'start' if said else 'install'} one, or build on AWS: meks build"
    raise Failure(Code.BUILD_FAILED, found, remedy, exit_code=NOT_FOUND)


def _free_tag(image: ImagePlan, values: Mapping[str, str], tools: Tools) -> tuple[str, str]:
    """Return an image's repository, and the tag to push it under; empty: it is built.

    Of the last the repository is its URI, by digest.
    """
    if image.keys[0] not in values:
        raise not_deployed(image.name)
    repository, _, tag = values[image.keys[0]].rpartition(":")
    if tag == image.tag and (digest := Records(tools).find(image, values).digest) is not None:
        return f"{repository}@{digest}", ""
    tagged = digest_of(repository, {"imageTag": image.tag}, tools.aws.client("ecr"))
    if tagged is None:
        return repository, image.tag
    if outputs.has(tools, f"{repository}@{tagged}"):
        return f"{repository}@{tagged}", ""
    # What is there is somebody else's, for all that is known, and tags do not move.
    return repository, f"{image.tag}-{secrets.token_hex(4)}"


def _built_base(image: ImagePlan, values: Mapping[str, str], tools: Tools) -> str | None:
    """Return what an image starts from, by digest; None where that is not built yet."""
    base = next((each for each in tools.plan.images if each.name == image.base), None)
    uri, tag = _free_tag(base, values, tools) if base else ("", "none")
    return None if tag else uri


class _LocalBuild:
    """One image on its way through the steps."""

    def __init__(
        self, image: ImagePlan, repository: str, engine: str, folder: Path, tools: Tools
    ) -> None:
        self._image, self._repository, self._engine = image, repository, engine
        self._folder, self._tools = folder, tools
        self._source = folder / "source" / image.name

    def run(self, base: str | None, *, push: bool) -> Failure | None:
        """Go through the steps, from a base where the image has one; return why one failed."""
        environment = {
            **os.environ,
            **self._image.environment(self._repository),
            **tag_variables(self._image),
            "ENGINE": self._engine,
            # Podman's own format has no SHELL, and our Dockerfiles would run without pipefail.
            "BUILDAH_FORMAT": "docker",
            "STATE": str(self._folder / f"{self._image.name}.json"),
            "REPORTS": str(self._folder / "reports"),
            # This command asks ECR itself, so the machine needs no AWS command line.
            "REGISTRY": "none",
            **({BASE: base} if base else {}),
        }
        # As CodeBuild gets it: where this package is installed, there is no checkout to build from.
        if self._image.own is None:
            stage(ROOT, self._image.name, self._source)
        else:
            folder = self._tools.cluster_file.parent
            stage_own(self._image.own, folder, ROOT, self._source)
        if push:
            # Before the build: what it starts from may be in the same registry.
            self._log_in()
        for step in ("check", "build", "test", *(["push"] if push else [])):
            code, tail = self._step(step, environment)
            if code:
                cause = cause_of(tail)
                return Failure(
                    Code.BUILD_FAILED,
                    cause.found if cause else (tail[-1] if tail else f"exit code {code}"),
                    cause.remedy if cause else "look at the lines above",
                    where=f"{step} of {self._image.name}",
                )
        return None

    def _step(self, step: str, environment: Mapping[str, str]) -> tuple[int, list[str]]:
        """Run one step, its output as it comes; return its exit code and last lines."""
        self._tools.console.say(f"{self._image.name}: {step}")
        tail: list[str] = []
        with subprocess.Popen(  # noqa: S603 -- this project's own program
            [sys.executable, self._image.program, step],
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
