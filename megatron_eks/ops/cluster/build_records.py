"""Which images are this project's own: CodeBuild's record of the builds that pushed them.

Code of any build may push any tag, so a tag proves nothing. What a build exports, what it was built
from and what was overridden for it, CodeBuild keeps, and no build can write (decision 62).
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.client import BaseClient

from megatron_eks.build_context import context_paths
from megatron_eks.config.codes import Code
from megatron_eks.config.outputs import is_digest
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.cluster.images import DIGEST, REPOSITORIES, ImagePlan
from megatron_eks.project import IN_CHECKOUT, ROOT

_Described = Mapping[str, Any]

_CACHE = "CACHE_FROM"
BASE = "BASE_IMAGE"
"""What a build of the user's image starts from: an image of ours by digest."""
# What the person who starts a build may choose: none of it changes what an image consists of. The
# tag is a name; cache and base are judged by themselves.
_CHOSEN = frozenset(
    {
        *("IMAGE_TAG", "PROJECT_VERSION", "RECORDED_DIGEST", "SOURCE_REVISION"),
        *("TAG_STRATEGY", "TEST_LEVEL", _CACHE, BASE),
    }
)
# Of the build machine; each can be overridden in StartBuild.
_MACHINE = ("certificate", "dockerServer", "fleet", "image", "registryCredential")
_BATCH = 100
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Record:
    """What is known of an image's content, and of the builds before it."""

    digest: str | None
    """Of the newest image of this content that is still in the registry."""
    cache: str | None
    """Without one: of the newest image of any content, whose layers a build may begin with."""
    same: tuple[str, ...] = ()
    """Of all images of this content, in the registry or not."""
    base: str | None = None
    """What a new build starts from, as REPOSITORY@DIGEST, where that is an image of ours."""

    def variables(self) -> dict[str, str]:
        """Return what a new build is told."""
        found = {BASE: self.base} if self.base else {}
        if self.digest:
            return found | {"RECORDED_DIGEST": self.digest}
        return found | ({_CACHE: self.cache} if self.cache else {})


class Records:
    """The builds of an account as CodeBuild describes them."""

    def __init__(self, tools: Tools) -> None:
        self._console = tools.console
        self._images = {image.name: image for image in tools.plan.images}
        self._codebuild = tools.aws.client("codebuild")
        self._ecr = tools.aws.client("ecr")
        self._noted: set[str] = set()

    def find(self, image: ImagePlan, values: Mapping[str, str]) -> Record:
        """Return the record of an image, by the outputs of the stack: of its tag's content."""
        uri, project = (values[key] for key in image.keys)
        repository, _, tag = uri.rpartition(":")
        bases = self._bases(image, values)
        same: list[str] = []
        trusted: list[str] = []
        for build, deployed in self._builds(project):
            digest = _exported(build)
            if not digest:
                continue
            source = _part(build, "source")
            is_same = source.get("location") == _part(deployed, "source").get("location")
            if overridden := _overridden(build, deployed):
                if is_same:
                    number = build.get("buildNumber", "")
                    found = f"build {number} of {project} records nothing"
                    self._note(f"{found}: it ran with another {', '.join(overridden)}")
                continue
            if source.get("type") == "GITHUB":
                commit = str(build.get("resolvedSourceVersion", ""))
                try:
                    is_same = tag == image.tag and same_source(commit, image.name)
                except Failure as failure:
                    is_same = False
                    self._note(f"a build of {image.repository} is not compared: {failure}")
                if not is_same:
                    # A commit that nobody here has looked at may have made it.
                    continue
            variables = _variables(build)
            known = variables.get(BASE, "") in bases
            if known and variables.get(_CACHE, "") in ("", *trusted):
                trusted.append(digest)
                same += [digest] if is_same else []
        newest = self._newest(repository, same)
        cache = None if newest else self._newest(repository, trusted)
        return Record(newest, cache, tuple(same), bases[-1] or None)

    def _bases(self, image: ImagePlan, values: Mapping[str, str]) -> list[str]:
        """Return what builds of an image may have started from, the last one what is there."""
        if image.base is None:
            return [""]
        base = self._images[image.base]
        uri = values[base.keys[0]]
        if is_digest(uri):
            return [uri]
        record, repository = self.find(base, values), uri.rpartition(":")[0]
        newest = [f"{repository}@{record.digest}" if record.digest else ""]
        return [f"{repository}@{each}" for each in record.same] + newest

    def _builds(self, project: str) -> Iterator[tuple[_Described, _Described]]:
        """Yield all builds, oldest first, each beside the project as it is deployed."""
        pages = self._codebuild.get_paginator("list_builds_for_project")
        ids = if_there(
            lambda: [
                str(each)
                for page in pages.paginate(projectName=project, sortOrder="ASCENDING")
                for each in page.get("ids", ())
            ],
            "ResourceNotFoundException",
        )
        if not ids:
            return
        (deployed,) = self._codebuild.batch_get_projects(names=[project])["projects"]
        for start in range(0, len(ids), _BATCH):
            answer = self._codebuild.batch_get_builds(ids=ids[start : start + _BATCH])
            described = {each["id"]: each for each in answer["builds"]}
            for number in ids[start : start + _BATCH]:
                if number in described:
                    yield described[number], deployed

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._console.say(f"note: {text}")

    def _newest(self, repository: str, digests: list[str]) -> str | None:
        there = (each for each in reversed(digests) if is_there(repository, each, self._ecr))
        return next(there, None)


def is_there(repository: str, digest: str, ecr: BaseClient) -> bool:
    """Tell whether a repository, by its URI, has an image."""
    return digest_of(repository, {"imageDigest": digest}, ecr) is not None


def digest_of(repository: str, image: Mapping[str, str], ecr: BaseClient) -> str | None:
    """Return the digest of an image in a repository; None where there is no such image."""
    found = if_there(
        ecr.describe_images,
        *("ImageNotFoundException", "RepositoryNotFoundException"),
        repositoryName=repository.partition("/")[2],
        imageIds=[dict(image)],
    )
    return found and str(found["imageDetails"][0]["imageDigest"])


def _overridden(build: _Described, project: _Described) -> list[str]:
    """Name what of a build is not as the project is deployed: StartBuild can override it all."""
    ran, meant = _settings(build), _settings(project)
    return sorted(name for name in {*ran, *meant} if ran.get(name) != meant.get(name))


def _settings(described: _Described) -> Mapping[str, object]:
    """Return all that decides what comes out of a build, of it or of its project."""
    source, machine = _part(described, "source"), _part(described, "environment")
    location, kind = str(source.get("location", "")), source.get("type")
    return {
        **{key: each for key, each in _variables(described).items() if key not in _CHOSEN},
        **{key: machine.get(key) for key in _MACHINE},
        "machine": machine.get("type"),
        "type": kind,
        "buildspec": source.get("buildspec"),
        # The repository of GitHub, or the bucket, in which only deployments write.
        "location": location if kind == "GITHUB" else location.partition("/")[0],
        "serviceRole": described.get("serviceRole"),
        "secondarySources": described.get("secondarySources") or None,
        "fileSystemLocations": described.get("fileSystemLocations") or None,
        "cache": _part(described, "cache").get("type", "NO_CACHE"),
        "debugSession": bool(_part(described, "debugSession").get("sessionEnabled")),
    }


def _variables(described: _Described) -> dict[str, str]:
    """Return variables by name; one whose value is fetched from elsewhere shows where."""
    found: dict[str, str] = {}
    for each in _part(described, "environment").get("environmentVariables", ()):
        kind = each.get("type", "PLAINTEXT")
        value = each["value"] if kind == "PLAINTEXT" else f"{kind}:{each['value']}"
        # Of a name that stands there twice nobody knows which one the build took.
        found[each["name"]] = f"{found[each['name']]} {value}" if each["name"] in found else value
    return found


def _exported(build: _Described) -> str:
    """Return the digest that a build has pushed; empty unless it succeeded and pushed one."""
    if build["buildStatus"] != "SUCCEEDED":
        return ""
    listed = build.get("exportedEnvironmentVariables") or ()
    values = (str(each.get("value", "")) for each in listed if each["name"] == DIGEST)
    return next((each for each in values if _SHA256.fullmatch(each)), "")


def _part(described: _Described, name: str) -> _Described:
    return described.get(name) or {}


_SECONDS = 30
_OURS = {path for image in REPOSITORIES for path in context_paths(image) if "assets" not in path}
_DASHBOARDS = ":(exclude)assets/dashboards"
# A build runs the one file that is in no image.
_SOURCES = ("assets", _DASHBOARDS, *sorted(_OURS), "megatron_eks/build_context.py")
_SHA = re.compile(r"[0-9a-f]{40}")


def revision() -> str:
    """Return the commit of this checkout; raise Failure where that is not what would be built."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", *_SOURCES)
    if changed:
        files = ", ".join(line[3:] for line in changed.splitlines()[:3])
        raise Failure(
            Code.BUILD_FAILED,
            f"a tag with the commit would be wrong: the images' files have other changes ({files})",
            "commit them, or set tag_strategy: auto",
        )
    return commit


def same_source(commit: str, image: str) -> bool:
    """Whether a build of a commit runs and holds the same files as one of this checkout would.

    What images and their builds are made of counts, but for the folders of other images, and what
    says how git checks files out and which Python runs. Raises Failure where git cannot tell, or
    this checkout has changes of its own.
    """
    if not _SHA.fullmatch(commit):
        return False
    revision()
    others = [f":(exclude)assets/images/{name}" for name in REPOSITORIES if name != image]
    paths = (*_SOURCES, ".gitattributes", ".python-version", *others)
    try:
        return not _git("diff-tree", "-r", "--name-only", commit, "HEAD", "--", *paths)
    except Failure as failure:
        remedy = "run: git fetch, which may bring the commit"
        raise Failure(Code.BUILD_FAILED, failure.found, remedy) from None


def _git(*words: str) -> str:
    if not IN_CHECKOUT:
        # A repository around the installed package would tell commits of its own.
        found = "this is an installed package, and no checkout with commits"
        raise Failure(Code.BUILD_FAILED, found, "set tag_strategy: auto or semantic")
    try:
        done = subprocess.run(  # noqa: S603 -- git, with words of our own
            ["git", "-C", str(ROOT), *words],  # noqa: S607 -- the user's own git
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as problem:
        remedy = "work in a checkout of git, or set tag_strategy: auto"
        raise Failure(
            Code.BUILD_FAILED, f"git does not tell the commit: {problem}", remedy
        ) from None
    return done.stdout.strip("\n")
