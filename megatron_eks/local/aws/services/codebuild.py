"""CodeBuild as moto lacks it: projects that change, keep their key, and have webhooks."""

from typing import ClassVar

from moto.codebuild.responses import CodeBuildResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult

from megatron_eks.local.aws.services.operation import parameters
from megatron_eks.local.aws.values import Object


class CodeBuildError(ServiceException):
    """What CodeBuild cannot find."""

    code = "ResourceNotFoundException"


class CodeBuildApi(CodeBuildResponse):
    """CodeBuild with changes."""

    _KEPT: ClassVar = ("description", "source", "artifacts", "environment", "serviceRole")
    _MORE: ClassVar = ("encryptionKey", "timeoutInMinutes", "logsConfig", "cache", "sourceVersion")

    def create_project(self) -> ActionResult:
        """CreateProject."""
        given = parameters(self)
        super().create_project()
        return self._changed(given)

    def update_project(self) -> ActionResult:
        """UpdateProject."""
        return self._changed(parameters(self))

    def create_webhook(self) -> ActionResult:
        """CreateWebhook; nobody calls it here."""
        given = parameters(self)
        webhook = {
            "url": f"https://api.github.com/local/{given['projectName']}",
            "filterGroups": given.get("filterGroups", []),
        }
        self._project(given["projectName"])["webhook"] = webhook
        return ActionResult({"webhook": webhook})

    def delete_webhook(self) -> EmptyResult:
        """DeleteWebhook."""
        self._project(parameters(self)["projectName"]).pop("webhook", None)
        return EmptyResult()

    def _changed(self, given: Object) -> ActionResult:
        project = self._project(given["name"])
        for name in (*self._KEPT, *self._MORE):
            if name in given:
                project[name] = given[name]
        return ActionResult({"project": project})

    def _project(self, name: str) -> Object:
        projects = self.codebuild_backend.codebuild_projects
        if name not in projects:
            raise CodeBuildError(f"Project cannot be found: {name}")
        metadata: Object = projects[name].project_metadata
        return metadata
