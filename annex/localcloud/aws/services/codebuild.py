"""CodeBuild as moto lacks it: projects that change, have webhooks, and push what they build."""

import json
import time
import uuid
from datetime import UTC, datetime
from typing import ClassVar

from botocore.exceptions import ClientError
from moto.codebuild.responses import CodeBuildResponse
from moto.core.responses import ActionResult

from megatron_eks.localcloud.aws.services.operation import Regional, ServiceError, kept, parameters
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

_DONE, _FAILED = "SUCCEEDED", "FAILED"
_NEWER_MACHINE = "BUILD_GENERAL1_XLARGE"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class CodeBuildApi(Regional, CodeBuildResponse):
    """CodeBuild with changes, and builds that make a manifest without layers."""

    _KEPT: ClassVar = (
        *("artifacts", "cache", "description", "encryptionKey", "environment", "logsConfig"),
        *("serviceRole", "source", "sourceVersion", "timeoutInMinutes"),
    )

    def create_project(self) -> ActionResult:
        """CreateProject."""
        super().create_project()
        return self.update_project()

    def _get_param(self, param_name: str, if_none: Value = None) -> Value:
        """Give moto a machine that it knows."""
        value = super()._get_param(param_name, if_none)
        if param_name == "environment" and value and value.get("computeType") == _NEWER_MACHINE:
            return {**value, "computeType": "BUILD_GENERAL1_LARGE"}
        return value

    def update_project(self) -> ActionResult:
        """UpdateProject."""
        given = parameters(self)
        project = self._project(given["name"])
        project.update({name: given[name] for name in self._KEPT if name in given})
        return ActionResult({"project": project})

    def create_webhook(self) -> ActionResult:
        """CreateWebhook; nobody calls it here."""
        given = parameters(self)
        webhook = {
            "url": f"https://api.github.com/local/{given['projectName']}",
            "filterGroups": given.get("filterGroups", []),
        }
        self._project(given["projectName"])["webhook"] = webhook
        return ActionResult({"webhook": webhook})

    def start_build(self) -> ActionResult:
        """StartBuild; it is over at once, and its log says what it did not do."""
        project = self._project(parameters(self)["projectName"])
        name = project["name"]
        history = self.codebuild_backend.build_history[name]
        number = f"{name}:{uuid.uuid4()}"
        overrides = parameters(self).get("environmentVariablesOverride", [])
        variables = {
            each["name"]: each
            for each in [*project["environment"].get("environmentVariables", []), *overrides]
        }
        phases, lines, digest = self._build(project, variables)
        now = datetime.now(tz=UTC)
        build = {
            "id": number,
            "arn": f"arn:aws:codebuild:{self.region}:{ACCOUNT}:build/{number}",
            "buildNumber": len(history) + 1,
            "projectName": name,
            "startTime": now,
            "endTime": now,
            "currentPhase": "COMPLETED",
            "buildStatus": phases[-1]["phaseStatus"],
            "phases": [{**each, "startTime": now, "endTime": now} for each in phases],
            "source": project["source"],
            "environment": {
                **project["environment"],
                "environmentVariables": list(variables.values()),
            },
            "exportedEnvironmentVariables": [{"name": "IMAGE_DIGEST", "value": digest}],
            "serviceRole": project["serviceRole"],
            "buildComplete": True,
            "logs": self._log(project, number.partition(":")[2], lines),
        }
        kept(self.codebuild_backend, "builds")[number] = build
        history.append(number)
        return ActionResult({"build": build})

    def batch_get_builds(self) -> ActionResult:
        """BatchGetBuilds."""
        wanted, builds = parameters(self)["ids"], kept(self.codebuild_backend, "builds")
        return ActionResult(
            {
                "builds": [builds[each] for each in wanted if each in builds],
                "buildsNotFound": [each for each in wanted if each not in builds],
            }
        )

    def _build(self, project: Object, variables: Object) -> tuple[list[Object], list[str], str]:
        """Return the phases of a build, the last one with its end, its log, and what it pushed."""
        source = project["source"]
        if source["type"] == "S3":
            bucket, _, key = source["location"].partition("/")
            try:
                self.client("s3").head_object(Bucket=bucket, Key=key)
            except ClientError as error:
                return [_phase("DOWNLOAD_SOURCE", str(error))], [f"no source: {error}"], ""
        downloaded = _phase("DOWNLOAD_SOURCE")
        failure = self.regions.failures.take("BUILD", project["name"], "AWS::CodeBuild::Project")
        if failure is not None:
            return [downloaded, _phase("BUILD", failure)], [failure], ""
        lines = ["local AWS builds no image: it pushes a manifest without layers"]
        digest = ""
        if "REPOSITORY_URI" in variables and "RECORDED_DIGEST" not in variables:
            repository = variables["REPOSITORY_URI"]["value"].partition("/")[2]
            digest = self._push(repository, variables["IMAGE_TAG"]["value"])
            lines.append(f"digest: {digest}")
        return [downloaded, _phase("BUILD")], lines, digest

    def _push(self, name: str, tag: str) -> str:
        """Put an image under a tag, or a new one where that is taken; return its digest."""
        ecr = self.client("ecr")
        taken = {each.get("imageTag") for each in ecr.list_images(repositoryName=name)["imageIds"]}
        if tag in taken:
            tag = f"{tag}-{uuid.uuid4().hex[:8]}"
        config = {"mediaType": _MANIFEST, "size": 2, "digest": f"sha256:{'0' * 64}"}
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": config,
            "layers": [],
            "annotations": {"local-aws": f"{name}:{tag}"},
        }
        answer = ecr.put_image(
            repositoryName=name, imageTag=tag, imageManifest=json.dumps(manifest)
        )
        return str(answer["image"]["imageId"]["imageDigest"])

    def _log(self, project: Object, stream: str, lines: list[str]) -> Object:
        group = project.get("logsConfig", {}).get("cloudWatchLogs", {}).get("groupName")
        if not group:
            return {}
        logs = self.client("logs")
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        now = int(time.time() * 1000)
        logs.put_log_events(
            logGroupName=group,
            logStreamName=stream,
            logEvents=[{"timestamp": now, "message": each} for each in lines],
        )
        return {"groupName": group, "streamName": stream}

    def _project(self, name: str) -> Object:
        projects = self.codebuild_backend.codebuild_projects
        if name not in projects:
            raise ServiceError("ResourceNotFoundException", f"Project cannot be found: {name}")
        metadata: Object = projects[name].project_metadata
        return metadata


def _phase(name: str, failure: str | None = None) -> Object:
    if failure is None:
        return {"phaseType": name, "phaseStatus": _DONE, "durationInSeconds": 0, "contexts": []}
    contexts = [{"statusCode": "LOCAL_AWS", "message": failure}]
    return {"phaseType": name, "phaseStatus": _FAILED, "durationInSeconds": 0, "contexts": contexts}
