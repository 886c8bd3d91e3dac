"""`meks build`: container images made by CodeBuild, followed until their digest is known."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import choices
from megatron_eks.ops.aws.causes import cause_of
from megatron_eks.ops.aws.session import error_code
from megatron_eks.ops.aws.stacks import Stack
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import outputs
from megatron_eks.ops.cluster.build_records import BASE, Records, revision
from megatron_eks.ops.console import duration
from megatron_eks.ops.failure import FAILED, INTERRUPTED, NOT_FOUND, USAGE, Failure
from megatron_eks.plan.cluster.images import ImagePlan

_POLL_SECONDS = 5
# The project gives up after four hours, and may have waited for a machine before.
_LIMIT_SECONDS = 5 * 3600
_TAIL_LINES = 15
_LOG_PAGE = 1000

# What CodeBuild does for us is in BUILD; the others fail for reasons of their own.
_REMEDIES = {
    "PROVISIONING": "CodeBuild got no machine: look at the quota of concurrent builds",
    "DOWNLOAD_SOURCE": "the source is gone from the CDK's bucket: run meks deploy Images",
    "PRE_BUILD": "look at the lines above",
    "BUILD": "correct it, run meks deploy Images, then meks build again",
    "POST_BUILD": "run meks build again: what was pushed stays, the rest follows",
}
_OTHERWISE = "run meks build again; if it fails again, look at the build in the console"


_Build = Mapping[str, Any]
"""A build as CodeBuild describes it."""


def run(images: Sequence[str], tools: Tools) -> int:
    """Build the named images, or all; raise Failure with the last lines of a failed build."""
    plan = tools.plan
    chosen = chosen_of(images, tools)
    stack = tools.stacks.find(plan.stack("Images"))
    if stack is None or not stack.made:
        raise not_deployed(plan.name)
    for image in chosen:
        if image.keys[0] not in stack.outputs:
            raise not_deployed(image.name)
    builds = Builds(tools)
    failures: list[Failure] = []
    try:
        # What starts from an image of ours comes after it.
        for has_base in (False, True):
            part = [each for each in chosen if (each.base is not None) is has_base]
            started = [(each, _start(each, stack, builds)) for each in part if not failures]
            told = [builds.follow(image, build) for image, build in started if build]
            failures += filter(None, told)
    except KeyboardInterrupt:
        tools.console.say("\nthe build goes on; `meks build` follows it again")
        return INTERRUPTED
    return ended(tools, failures)


def tag_variables(image: ImagePlan) -> dict[str, str]:
    """Return what a second tag is made of, which the machine that builds cannot know."""
    if image.tag_strategy == "semantic":
        return {"PROJECT_VERSION": version("megatron-eks")}
    return {"SOURCE_REVISION": revision()} if image.tag_strategy == "git-sha" else {}


def chosen_of(images: Sequence[str], tools: Tools) -> list[ImagePlan]:
    """Return the images of those names, or all; raise Failure for an unknown name."""
    known = {image.name: image for image in tools.plan.images}
    for name in images:
        if name not in known:
            found = f"{name!r} is not an image of {tools.plan.name}"
            raise Failure(Code.UNKNOWN_IMAGE, found, choices(name, known), exit_code=USAGE)
    return [image for name, image in known.items() if not images or name in images]


def not_deployed(name: str) -> Failure:
    """Say that a cluster or an image has nowhere to be pushed to."""
    found = f"{name} has no repository or build project yet"
    return Failure(Code.NOT_DEPLOYED, found, "run: meks deploy Images", exit_code=NOT_FOUND)


def no_base(image: ImagePlan) -> Failure:
    """Say that an image comes first."""
    found = f"{image.name} starts from {image.base}, which has no recorded build"
    remedy = f"build that first: meks build {image.base}"
    return Failure(Code.BUILD_FAILED, found, remedy, exit_code=NOT_FOUND)


def _start(image: ImagePlan, stack: Stack, builds: "Builds") -> str | None:
    """Start a build and return its id; None where the image is built already."""
    uri, project = (stack.outputs[key] for key in image.keys)
    if not uri.endswith(f":{image.tag}"):
        builds.console.say(
            f"note: this version makes {image.repository}:{image.tag}, and what is built is "
            f"the deployed {uri.rpartition(':')[2]}; meks deploy Images brings the new one"
        )
    record = builds.records.find(image, stack.outputs)
    # Another strategy than auto has a tag to add to what is built already.
    if image.tag_strategy == "auto" and record.digest is not None:
        builds.console.say(f"{image.name}: built already")
        return None
    variables = tag_variables(image) | record.variables()
    if image.base and BASE not in variables:
        raise no_base(image)
    return builds.start(project, variables)


def ended(
    tools: Tools, failures: Sequence[Failure], pushed: Mapping[str, str] | None = None
) -> int:
    """Record the digests of what was built, say what failed, and return the exit code."""
    path = outputs.record(tools, pushed)
    for failure in failures:
        tools.console.say(str(failure))
    if failures:
        return FAILED
    tools.console.say(f"wrote the digests to {path}; next: {outputs.next_step(tools)}")
    return 0


class Builds:
    """CodeBuild, and the logs of what it does."""

    def __init__(self, tools: Tools) -> None:
        self.console = tools.console
        self.records = Records(tools)
        self._codebuild = tools.aws.client("codebuild")
        self._logs = tools.aws.client("logs")

    def start(self, project: str, variables: Mapping[str, str]) -> str:
        """Start a build and return its id; one that is under way is taken instead."""
        newest = self._codebuild.list_builds_for_project(projectName=project).get("ids", [])[:5]
        for running in self._codebuild.batch_get_builds(ids=newest)["builds"] if newest else ():
            if running["buildStatus"] == "IN_PROGRESS":
                number = running.get("buildNumber", 0)
                self.console.say(f"{project}: following build {number}, under way")
                return str(running["id"])
        overrides = [{"name": name, "value": value} for name, value in variables.items()]
        more = {"environmentVariablesOverride": overrides} if overrides else {}
        build = self._codebuild.start_build(projectName=project, **more)["build"]
        self.console.say(f"{project}: build {build.get('buildNumber', '')} started")
        return str(build["id"])

    def follow(self, image: ImagePlan, build_id: str) -> Failure | None:
        """Tell how a build goes until it ends; return why it failed."""
        said: set[str] = set()
        token = ""
        began = self.console.clock.now()
        tail: list[str] = []
        while True:
            (build,) = self._codebuild.batch_get_builds(ids=[build_id])["builds"]
            for phase in build.get("phases", ()):
                name = phase.get("phaseType", "")
                if phase.get("phaseStatus") and name not in said:
                    said.add(name)
                    self.console.say(f"{image.name}: {name} {phase['phaseStatus']}")
            lines, token = self._new_lines(build, token)
            for line in lines:
                self.console.say(f"  {line}")
            tail = [*tail, *lines][-_TAIL_LINES:]
            if build["buildStatus"] != "IN_PROGRESS":
                break
            if (self.console.clock.now() - began).total_seconds() > _LIMIT_SECONDS:
                found = f"build {build.get('buildNumber', 0)} of {image.name} does not end"
                remedy = "look at it in the CodeBuild console"
                return Failure(Code.WAITED_TOO_LONG, found, remedy)
            self.console.clock.sleep(_POLL_SECONDS)
        took = duration((self.console.clock.now() - began).total_seconds())
        self.console.say(f"{image.name}: {build['buildStatus']} after {took}")
        done = build["buildStatus"] == "SUCCEEDED"
        return None if done else _failure(image, build, tail)

    def _new_lines(self, build: _Build, token: str) -> tuple[list[str], str]:
        logs = build.get("logs", {})
        if not logs.get("groupName") or not logs.get("streamName"):
            return [], token
        lines: list[str] = []
        while True:
            more = {"nextToken": token} if token else {}
            try:
                page = self._logs.get_log_events(
                    logGroupName=logs["groupName"],
                    logStreamName=logs["streamName"],
                    startFromHead=True,
                    limit=_LOG_PAGE,
                    **more,
                )
            except self._logs.exceptions.ClientError as error:
                # The stream comes with its first line.
                if error_code(error) == "ResourceNotFoundException":
                    return lines, token
                raise
            lines += [
                "".join(char for char in event["message"] if char.isprintable() or char == "\t")
                for event in page["events"]
            ]
            # The same token again is the end of what there is.
            if page["nextForwardToken"] == token or not page["events"]:
                return lines, page["nextForwardToken"]
            token = page["nextForwardToken"]


def _failure(image: ImagePlan, build: _Build, tail: Sequence[str]) -> Failure:
    phase = next(
        (
            each
            for each in build.get("phases", ())
            if each.get("phaseStatus", "SUCCEEDED") != "SUCCEEDED"
        ),
        {"phaseType": build.get("currentPhase"), "phaseStatus": build["buildStatus"]},
    )
    name, status = phase.get("phaseType") or "", phase["phaseStatus"]
    contexts = (each.get("message") for each in phase.get("contexts", ()))
    message = "; ".join(filter(None, contexts))
    cause = cause_of([*tail, message])
    last = " | ".join(line for line in tail[-3:] if line)
    said = message or last or "CodeBuild says no more"
    return Failure(
        Code.BUILD_FAILED,
        f"{name} {status}: {cause.found if cause else said}",
        cause.remedy if cause else _REMEDIES.get(name, _OTHERWISE),
        where=f"build {build.get('buildNumber', 0)} of {image.name}",
    )
