"""CodeBuild here: a buildspec's phases for real, recorders in place of docker and aws."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.build_context import stage
from megatron_eks.plan.cluster.images import PHASES, PROGRAM, buildspec

ROOT = Path(__file__).parents[2]
ARGUMENTS = {"POD_UID": "10001"}
REGISTRY = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
REPOSITORY = f"{REGISTRY}/megatron-training"
TAG = "0123456789abcdef0123"
PASSWORD = "not-a-real-one"  # noqa: S105 -- what the recorder answers
DIGEST = f"sha256:{'ab' * 32}"
OTHER = f"sha256:{'cd' * 32}"

RECORDER = f"""#!{sys.executable} -SE
import json, os, pathlib, sys
state = pathlib.Path(os.environ["STATE"]).parent
words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
stdin = sys.stdin.read() if "--password-stdin" in words else ""
with (state / "calls").open("a") as calls:
    calls.write(json.dumps([words, stdin]) + "\\n")
if os.environ.get("FAILS") in (" ".join(words[:2]), words[-1]):
    sys.exit(os.environ.get("SAYS", "refused"))
tags = json.loads((state / "tags").read_text())
if words[1:3] == ["ecr", "get-login-password"]:
    print("{PASSWORD}")
if words[1:3] == ["ecr", "describe-images"]:
    if os.environ.get("ANSWER"):
        sys.exit(os.environ["ANSWER"])
    (tag,) = [word.partition("=")[2] for word in words if word.startswith("imageTag=")]
    if tag not in tags:
        sys.exit("An error occurred (ImageNotFoundException) when calling DescribeImages")
    print(tags[tag])
if words[1:3] == ["ecr", "batch-get-image"]:
    print('{{"schemaVersion": 2}}')
if words[1:3] == ["ecr", "put-image"]:
    tags[words[words.index("--image-tag") + 1]] = "{DIGEST}"
if words[1] == "push":
    tags[words[2].rpartition(":")[2]] = "{DIGEST}"
if words[1] == "run":
    for folder in [each for each in words if each.startswith("--volume=")]:
        report = pathlib.Path(folder[9:].partition(":")[0]) / "megatron.xml"
        report.write_text("<testsuite/>")
(state / "tags").write_text(json.dumps(tags))
"""


@dataclass(frozen=True)
class Build:
    """What a build did and said."""

    phases: dict[str, int]
    """Exit code of the first command that failed in each phase that ran, or 0."""
    out: str
    err: str
    calls: list[tuple[list[str], str]]
    """Command line and standard input of each call."""

    @property
    def succeeded(self) -> bool:
        """Tell whether CodeBuild would say so."""
        return not any(self.phases.values())

    def commands(self, program: str) -> list[list[str]]:
        """Return the calls of one program."""
        return [words[1:] for words, _ in self.calls if words[0] == program]

    def did(self, program: str) -> list[str]:
        """Return the first words of its calls: for docker, what was done."""
        return [words[0] for words in self.commands(program)]


class Machine:
    """A build machine, and the registry that it pushes to."""

    def __init__(self, folder: Path, program: str = PROGRAM) -> None:
        self.folder = folder
        self.spec = json.loads(buildspec(program))
        stage(ROOT, "megatron", folder / "source")
        programs = folder / "bin"
        programs.mkdir()
        for name in ("aws", "docker", "podman"):
            (programs / name).write_text(RECORDER)
            (programs / name).chmod(0o755)
        self.path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
        self.has()

    def has(self, **tags: str) -> None:
        """Say which tags the registry has."""
        (self.folder / "tags").write_text(json.dumps(tags))

    def tags(self) -> dict[str, str]:
        """Return what the registry has."""
        found: dict[str, str] = json.loads((self.folder / "tags").read_text())
        return found

    def exported(self, source: Path | None = None) -> str:
        """Return what CodeBuild would keep of the last build, by the buildspec's last command."""
        spec = self.spec
        (variable,) = spec["env"]["exported-variables"]
        command = spec["phases"]["post_build"]["commands"][-1]
        done = self._run(f'{command}; printf %s "${variable}"', "{}", source, {})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self,
        build_args: str = json.dumps(ARGUMENTS),
        *,
        source: Path | None = None,
        **environment: str,
    ) -> Build:
        """Run the phases as CodeBuild does: the last one whatever became of the second."""
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        spec = self.spec
        done: list[subprocess.CompletedProcess[str]] = []
        phases: dict[str, int] = {}
        for name, phase in spec["phases"].items():
            if phases.get("pre_build"):
                break
            phases[name] = 0
            for command in (each for each in phase["commands"] if "export " not in each):
                done.append(self._run(command, build_args, source, environment))
                if done[-1].returncode:
                    phases[name] = done[-1].returncode
                    break
        assert [*PHASES] == list(spec["phases"])
        lines = calls.read_text().splitlines() if calls.exists() else []
        return Build(
            phases,
            "".join(each.stdout for each in done),
            "".join(each.stderr for each in done),
            [(words, stdin) for words, stdin in map(json.loads, lines)],
        )

    def _run(
        self, command: str, build_args: str, source: Path | None, environment: dict[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 -- the build under test
            ["/bin/sh", "-c", command],
            env={
                "PATH": self.path,
                "STATE": str(self.folder / "state.json"),
                "REPORTS": str(self.folder / "reports"),
                "IMAGE_NAME": "megatron",
                "REPOSITORY_URI": REPOSITORY,
                "IMAGE_TAG": TAG,
                "BUILD_ARGS": build_args,
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": os.environ.get("HOME", "/"),
                **environment,
            },
            cwd=source or self.folder / "source",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
