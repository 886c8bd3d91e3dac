"""One image, from its source to the registry: what CodeBuild and `meks build --local` run.

build_image.py check|login|build|test|push|digest

check   compute the tags, and ask the registry what it has
login   let the engine push to it
build   build the image, unless a build of this project has recorded it
test    run its self-test in a container without a network, as the pods' user
push    push it under its tags, or add a tag to what is recorded
digest  print the digest of what was built and pushed here, and of nothing else

The environment says what to do: IMAGE_NAME (folder under images/), REPOSITORY_URI, IMAGE_TAG (hash
of the content), BUILD_ARGS (a JSON object), TEST_LEVEL, TAG_STRATEGY with PROJECT_VERSION or
SOURCE_REVISION, RECORDED_DIGEST (the image of this content that an earlier build has recorded),
CACHE_FROM (the recorded image whose layers to begin with), WEBHOOK_BRANCH (whose pushes start
builds), ENGINE (docker or podman), STATE and REPORTS (what the next steps and people read). Nothing
is pushed untested, no tag but `latest` moves, and AWS's build image has plain Python alone.
"""

import json
import os
import re
import runpy
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

# Alone: whoever reads the record of a build compares this file, and none that it could import.
_CONTEXT = Path("megatron_eks/build_context.py")
_FOLDER = "/tmp/megatron-eks-build"  # noqa: S108 -- a build machine is one build's
_SHA = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
PROGRAMS = "/opt/megatron-eks/images"  # their gate and self-test
_SKIPPED = """<?xml version="1.0" encoding="utf-8"?>
<testsuite name="image {image}" tests="1" skipped="1"><testcase classname="{image}.built"
name="built already"><skipped message="{tag} was tested when it was built"/></testcase></testsuite>
"""


class StopError(Exception):
    """The build cannot go on; the text says why, and what to do."""


class Build:
    """One build, by the variables that it was given."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.image = environment["IMAGE_NAME"]
        self.repository = environment["REPOSITORY_URI"]
        self._registry, _, self._name = self.repository.partition("/")
        self.context, self.dockerfile = ".", f"assets/images/{self.image}/Dockerfile"
        self.engine = environment.get("ENGINE") or "docker"
        self.arguments: dict[str, str] = json.loads(environment.get("BUILD_ARGS") or "{}")
        self.reports = Path(environment.get("REPORTS") or f"{_FOLDER}/reports")
        self._state_file = Path(environment.get("STATE") or f"{_FOLDER}/state.json")
        # A checkout has more than an image's files, and need not be what the cluster was deployed
        # from.
        self.checkout = _CONTEXT.is_file()

    # The steps

    def check(self) -> None:
        """Compute the tags, and refuse what would move one that may not move."""
        tag, extra = self._content_tag(), self._extra_tag()
        digest = self._given_digest("RECORDED_DIGEST")
        if not digest and self._pushed_digest(tag):
            # Whoever builds from any commit can push any tag, so a tag proves nothing.
            _say(f"{tag} is in the registry, and no build is known to have recorded it")
            tag = f"{tag}-{secrets.token_hex(4)}"
        state = dict.fromkeys(("passed", "tagged", "pushed"), "")
        cache = self._given_digest("CACHE_FROM")
        state |= {"tag": tag, "extra": extra, "digest": digest, "cache": cache}
        if extra and extra != "latest":
            theirs = self._pushed_digest(extra)
            if theirs and theirs != digest:
                raise StopError(
                    f"{extra} names another image already ({theirs}), and tags do not move - raise "
                    "the version in pyproject.toml, commit what changed, or set tag_strategy: auto"
                )
            state["tagged"] = theirs
        self._write(state)
        _say(f"{self.repository}:{tag}" + (f" and {extra}" if extra else ""))
        if digest:
            _say(f"a build has recorded it as {digest}, so nothing is built")

    def login(self) -> None:
        """Give the engine a password of twelve hours, through its standard input."""
        if self._read()["digest"]:
            return
        password = _run("aws", "ecr", "get-login-password", stdout=subprocess.PIPE)
        login = [self.engine, "login", "--username", "AWS", "--password-stdin", self._registry]
        _run(*login, stdin=password)

    def build(self) -> None:
        """Build the image from the folder with the sources."""
        state = self._read()
        if state["digest"]:
            return
        arguments = dict(self.arguments)
        if self._environment.get("CACHE") == "registry":
            # The image lists its layers for the next build.
            arguments["BUILDKIT_INLINE_CACHE"] = "1"
        words: list[str] = []
        for name, value in arguments.items():
            words += ["--build-arg", f"{name}={value}"]
        if state["cache"]:
            # By its digest: a tag may have been moved to somebody else's layers.
            words += ["--cache-from", f"{self.repository}@{state['cache']}"]
        image = f"{self.repository}:{state['tag']}"
        with TemporaryDirectory() as folder:
            if self.checkout:
                runpy.run_path(str(_CONTEXT))["stage"](Path(), self.image, Path(folder))
            context = folder if self.checkout else self.context
            dockerfile = f"{context}/{self.dockerfile}"
            _run(self.engine, "build", *words, "--file", dockerfile, "--tag", image, context)

    def test(self) -> None:
        """Run the self-test as a pod would: its user, a root that is read-only, no network."""
        state = self._read()
        self.reports.mkdir(parents=True, exist_ok=True)
        report = self.reports / f"{self.image}.xml"
        if state["digest"]:
            report.write_text(_SKIPPED.format(image=self.image, tag=state["tag"]))
            return
        # The container's user is none of this machine's.
        self.reports.chmod(0o777)
        self._test(f"{self.repository}:{state['tag']}", report)
        self._write(state | {"passed": "yes"})

    def _test(self, image: str, report: Path) -> None:
        level = self._environment.get("TEST_LEVEL") or "standard"
        words = ["--image", self.image, "--level", level, "--report", f"/reports/{report.name}"]
        volume = f"--volume={self.reports}:/reports"
        self._in_container("python3", volume, image, f"{PROGRAMS}/selftest.py", *words)

    def _in_container(self, program: str, *words: str) -> None:
        """Run a program as a pod would; words are the engine's, the image, the program's."""
        _run(
            *(self.engine, "run", "--rm", "--network=none", "--read-only"),
            f"--user={self.arguments['POD_UID']}",
            *("--tmpfs=/tmp:rw,exec,mode=1777", "--shm-size=2g", f"--entrypoint={program}"),
            *words,
        )

    def push(self) -> None:
        """Push what was tested; the tag of the content first, because it never moves."""
        state = self._read()
        tag, extra = state["tag"], state["extra"]
        if state["digest"]:
            if extra and not state["tagged"]:
                self._retag(state["digest"], extra)
        elif not state["passed"]:
            raise StopError("nothing is pushed: the image was not built, or its tests failed")
        else:
            first = f"{self.repository}:{tag}"
            _run(self.engine, "push", first)
            if extra:
                _run(self.engine, "tag", first, f"{self.repository}:{extra}")
                _run(self.engine, "push", f"{self.repository}:{extra}")
            pushed = self._pushed_digest(tag)
            self._write(state | {"pushed": pushed})
            if pushed:
                _say(f"digest: {pushed}")

    def digest(self) -> None:
        """Print what CodeBuild keeps as the record of this build."""
        _say(self._read()["pushed"])

    # Tags

    def _content_tag(self) -> str:
        given = self._environment["IMAGE_TAG"]
        if not self.checkout or self._environment.get("REGISTRY") == "none":
            return given
        content_tag = runpy.run_path(str(_CONTEXT))["content_tag"]
        tag: str = content_tag(Path(), self.image, self.arguments)
        if tag != given and not self._is_push():
            raise StopError(
                f"this commit builds {tag}, and the cluster was deployed from a checkout that "
                f"builds {given} - push that one, or deploy from this one"
            )
        return tag

    def _is_push(self) -> bool:
        """Tell whether a push to the project's branch started this build, for a new content."""
        branch = self._environment.get("WEBHOOK_BRANCH")
        trigger = self._environment.get("CODEBUILD_WEBHOOK_TRIGGER")
        return bool(branch) and trigger == f"branch/{branch}"

    def _extra_tag(self) -> str:
        """Return the tag beside the content's; empty: none."""
        strategy = self._environment.get("TAG_STRATEGY") or "auto"
        if strategy == "semantic":
            version = self._environment.get("PROJECT_VERSION") or self._version_of_checkout()
            if not version:
                raise StopError("the tag strategy semantic needs a version - run meks build")
            return f"v{version}"
        if strategy == "git-sha":
            names = ("SOURCE_REVISION", "CODEBUILD_RESOLVED_SOURCE_VERSION")
            found = [self._environment.get(name, "") for name in names]
            revision = next((each for each in found if _SHA.fullmatch(each)), "")
            if not revision:
                raise StopError(
                    "the tag strategy git-sha needs a commit - run meks build in a checkout of git "
                    "without changes in what images hold"
                )
            return f"git-{revision[:12]}"
        return {"auto": "", "latest": "latest"}[strategy]

    def _version_of_checkout(self) -> str:
        path = Path("pyproject.toml")
        match = _VERSION.search(path.read_text()) if path.is_file() else None
        return match[1] if match else ""

    # The registry

    def _given_digest(self, variable: str) -> str:
        given = self._environment.get(variable, "")
        if given and not _DIGEST.fullmatch(given):
            raise StopError(f"{variable} is not a digest: {given!r}")
        return given

    def _pushed_digest(self, tag: str) -> str:
        """Return the digest of a tag; empty: the registry does not have it."""
        if self._environment.get("REGISTRY") == "none":
            return ""
        done = subprocess.run(  # noqa: S603 -- AWS's command line, with words of our own
            self._ecr("describe-images", f"imageTag={tag}", "imageDetails[0].imageDigest"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.strip()
        if "ImageNotFoundException" in done.stderr:
            return ""
        raise StopError(done.stderr.strip())

    def _retag(self, digest: str, name: str) -> None:
        words = self._ecr("batch-get-image", f"imageDigest={digest}", "images[0].imageManifest")
        manifest = _run(*words, stdout=subprocess.PIPE)
        words = ["--repository-name", self._name, "--image-tag", name]
        _run("aws", "ecr", "put-image", *words, "--image-manifest", manifest.rstrip("\n"))

    def _ecr(self, action: str, image: str, query: str) -> list[str]:
        words = ["--repository-name", self._name, "--image-ids", image]
        return ["aws", "ecr", action, *words, "--query", query, "--output", "text"]

    # What one step leaves for the next

    def _read(self) -> dict[str, str]:
        if not self._state_file.is_file():
            raise StopError("the step check comes first")
        state: dict[str, str] = json.loads(self._state_file.read_text())
        return state

    def _write(self, state: Mapping[str, str]) -> None:
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        self._state_file.write_text(json.dumps(state))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(*words: str, stdin: str = "", stdout: int | None = None) -> str:
    done = subprocess.run(  # noqa: S603 -- an engine or AWS's command line
        words, input=stdin, stdout=stdout, text=True, check=False
    )
    if done.returncode:
        # AWS's command line has the service before the command.
        command = " ".join(words[: 2 + (words[0] == "aws")])
        raise StopError(f"{command} failed with exit code {done.returncode}")
    return done.stdout or ""


STEPS = ("check", "login", "build", "test", "push", "digest")


def main(words: list[str], build: type[Build] = Build) -> int:
    """Run one step of a kind of build."""
    if len(words) != 1 or words[0] not in STEPS:
        sys.stderr.write(__doc__ or "")
        return 0 if words == ["--help"] else 2
    try:
        getattr(build(os.environ), words[0])()
    except StopError as stop:
        sys.stderr.write(f"error {words[0]}: {stop}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
