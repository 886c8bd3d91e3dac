"""AWS as `meks build` sees it: stubbed services in which every request is expected."""

from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.stub import ANY, Stubber

from tests.ops.aws.fakes import ACCOUNT, NOBODY

REGISTRY = f"{ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com"
DIGEST = "sha256:" + "a" * 64
GROUP = "/megatron-eks/techpulse/build/megatron"


class Aws:
    """Stubbed services in which every request is expected, in its order."""

    def __init__(self) -> None:
        self.clients = {
            name: boto3.client(name, region_name="us-east-2", **NOBODY)
            for name in ("cloudformation", "codebuild", "ecr", "logs")
        }
        self.stubs = {name: Stubber(client) for name, client in self.clients.items()}
        for stub in self.stubs.values():
            stub.activate()

    def stacks(self, *, times=1):
        """Expect that the stack of images is asked for, alone or with the others."""
        for _ in range(times):
            self.stubs["cloudformation"].add_response(
                "describe_stacks", {"Stacks": [images_stack()]}, {"StackName": "techpulse-Images"}
            )

    def all_stacks(self):
        """Expect the question for every stack, of which one exists."""
        for part in ("Network", "Storage"):
            self.stubs["cloudformation"].add_client_error(
                "describe_stacks",
                "ValidationError",
                f"Stack with id techpulse-{part} does not exist",
            )
        self.stacks()
        for part in ("Cluster", "Observability"):
            self.stubs["cloudformation"].add_client_error(
                "describe_stacks",
                "ValidationError",
                f"Stack with id techpulse-{part} does not exist",
            )

    def none_recorded(self):
        """Expect the questions behind a build, of which nothing comes for either image."""
        self.all_stacks()
        for _ in range(2):
            self.history()
            self.image()

    def starts(self, **variables):
        """Expect that a build of the Megatron image is started with variables of its own."""
        overrides = [{"name": name, "value": value} for name, value in variables.items()]
        self.stubs["codebuild"].add_response("list_builds_for_project", {})
        self.stubs["codebuild"].add_response(
            "start_build",
            {"build": {"id": "techpulse-megatron:1", "buildNumber": 7}},
            {
                "projectName": "techpulse-megatron",
                **({"environmentVariablesOverride": overrides} if overrides else {}),
            },
        )

    def history(self, *builds):
        """Expect that CodeBuild is asked for all builds of a project; without any it has none."""
        codebuild = self.stubs["codebuild"]
        ids = {"ids": [each["id"] for each in builds]} if builds else {}
        codebuild.add_response("list_builds_for_project", ids)
        if builds:
            codebuild.add_response("batch_get_projects", {"projects": [PROJECT]})
            codebuild.add_response("batch_get_builds", {"builds": list(builds)})

    def recorded(self, digest):
        """Expect those questions, and that ECR has what a build recorded."""
        self.history(built(1, digest))
        self.image(digest)

    def image(self, digest=None):
        """Expect that ECR is asked for an image."""
        if digest is None:
            self.stubs["ecr"].add_client_error("describe_images", "ImageNotFoundException")
        else:
            details = {"imageDetails": [{"imageDigest": digest}]}
            self.stubs["ecr"].add_response("describe_images", details)

    def build(self, status, *phases, log=True):
        """Expect that CodeBuild is asked how a build goes."""
        now = datetime(2026, 11, 21, tzinfo=UTC)
        self.stubs["codebuild"].add_response(
            "batch_get_builds",
            {
                "builds": [
                    {
                        "id": "techpulse-megatron:1",
                        "buildNumber": 7,
                        "buildStatus": status,
                        "phases": [
                            {
                                "phaseType": name,
                                **({"phaseStatus": state} if state else {}),
                                "startTime": now,
                                "contexts": [{"message": message}] if message else [],
                            }
                            for name, state, message in phases
                        ],
                        "logs": {"groupName": GROUP, "streamName": "one"} if log else {},
                    }
                ]
            },
            {"ids": ["techpulse-megatron:1"]},
        )

    def lines(self, token, following, *lines):
        """Expect a page of the log."""
        more = {"nextToken": token} if token else {}
        self.stubs["logs"].add_response(
            "get_log_events",
            {
                "events": [{"timestamp": 1, "message": line} for line in lines],
                "nextForwardToken": following,
            },
            {
                "logGroupName": GROUP,
                "logStreamName": "one",
                "startFromHead": True,
                "limit": ANY,
                **more,
            },
        )

    def done(self):
        """Say that nothing more was expected."""
        for stub in self.stubs.values():
            stub.assert_no_pending_responses()


VARIABLES = {"IMAGE_NAME": "megatron", "IMAGE_TAG": "abc", "BUILD_ARGS": "{}", "CACHE": "registry"}
PROJECT: dict[str, Any] = {
    "name": "techpulse-megatron",
    "source": {"type": "S3", "location": "assets/abc.zip", "buildspec": "{}"},
    "environment": {
        "type": "LINUX_CONTAINER",
        "image": "aws/codebuild/standard:8.0",
        "computeType": "BUILD_GENERAL1_LARGE",
        "environmentVariables": [{"name": key, "value": VARIABLES[key]} for key in VARIABLES],
    },
    "serviceRole": "arn:aws:iam::123456789012:role/Builds",
}


def built(number, digest=DIGEST, **changes):
    """Return a build that pushed an image, as CodeBuild describes it, with something changed.

    `variables` are those that whoever started it has set, `machine` what else of its environment.
    """
    variables = VARIABLES | changes.pop("variables", {})
    machine = PROJECT["environment"] | changes.pop("machine", {})
    listed = [{"name": name, "value": value} for name, value in variables.items()]
    return {
        "id": f"techpulse-megatron:{number}",
        "buildNumber": number,
        "projectName": "techpulse-megatron",
        "buildStatus": "SUCCEEDED",
        "source": PROJECT["source"] | changes.pop("source", {}),
        "environment": machine | {"environmentVariables": listed},
        "serviceRole": PROJECT["serviceRole"],
        "exportedEnvironmentVariables": [{"name": "IMAGE_DIGEST", "value": digest}],
        **changes,
    }


def images_stack():
    """Return the stack as CloudFormation describes it."""
    outputs = {
        "MegatronImage": f"{REGISTRY}/megatron-training:abc",
        "MegatronBuildProject": "techpulse-megatron",
        "FsdpImage": f"{REGISTRY}/fsdp:abc",
        "FsdpBuildProject": "techpulse-fsdp",
    }
    return {
        "StackName": "techpulse-Images",
        "StackStatus": "CREATE_COMPLETE",
        "CreationTime": datetime(2026, 11, 21, tzinfo=UTC),
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()],
    }
