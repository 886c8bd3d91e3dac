"""Managed Prometheus as moto lacks it: scrapers, settings of workspaces, and alert managers."""

import uuid
from datetime import UTC, datetime

from moto.amp.responses import PrometheusServiceResponse
from moto.core.responses import ActionResult

from megatron_eks.localcloud.aws.services.operation import (
    NotFoundError,
    ServiceError,
    found,
    kept,
    parameters,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object


class PrometheusApi(PrometheusServiceResponse):
    """Operations on scrapers and workspaces."""

    def create_scraper(self) -> ActionResult:
        """CreateScraper."""
        given = parameters(self)
        scraper_id = f"s-{uuid.uuid4()}"
        scraper = {
            **given,
            "scraperId": scraper_id,
            "arn": f"arn:aws:aps:{self.region}:{ACCOUNT}:scraper/{scraper_id}",
            "roleArn": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/scraper.aps.amazonaws.com/x",
            "status": {"statusCode": "ACTIVE"},
            "createdAt": datetime.now(tz=UTC),
            "lastModifiedAt": datetime.now(tz=UTC),
        }
        kept(self.amp_backend, "scrapers")[scraper_id] = scraper
        return ActionResult(scraper)

    def describe_scraper(self) -> ActionResult:
        """DescribeScraper."""
        return ActionResult({"scraper": self._scraper()})

    def delete_scraper(self) -> ActionResult:
        """DeleteScraper."""
        scraper = self._scraper()
        kept(self.amp_backend, "scrapers").pop(scraper["scraperId"])
        return ActionResult({**scraper, "status": {"statusCode": "DELETING"}})

    def update_workspace_configuration(self) -> ActionResult:
        """UpdateWorkspaceConfiguration."""
        self._settings().update(parameters(self))
        return ActionResult({"status": {"statusCode": "ACTIVE"}})

    def describe_workspace_configuration(self) -> ActionResult:
        """DescribeWorkspaceConfiguration."""
        settings = {**self._settings(), "status": {"statusCode": "ACTIVE"}}
        return ActionResult({"workspaceConfiguration": settings})

    def create_alert_manager_definition(self) -> ActionResult:
        """CreateAlertManagerDefinition."""
        if "definition" in self._settings():
            raise ServiceError("ConflictException", "The definition exists already.")
        return self.put_alert_manager_definition()

    def put_alert_manager_definition(self) -> ActionResult:
        """PutAlertManagerDefinition."""
        now = datetime.now(tz=UTC)
        self._settings()["definition"] = {
            "status": {"statusCode": "ACTIVE"},
            "data": parameters(self)["data"],
            "createdAt": now,
            "modifiedAt": now,
        }
        return ActionResult({"status": {"statusCode": "ACTIVE"}})

    def describe_alert_manager_definition(self) -> ActionResult:
        """DescribeAlertManagerDefinition."""
        missing = NotFoundError("Alert manager definition not found")
        if "definition" not in self._settings():
            raise missing
        return ActionResult({"alertManagerDefinition": self._settings()["definition"]})

    def _scraper(self) -> Object:
        name = parameters(self)["scraperId"]
        return found(self.amp_backend, "scrapers", name, NotFoundError("Scraper not found"))

    def _settings(self) -> Object:
        given = parameters(self)
        return kept(self.amp_backend.describe_workspace(given["workspaceId"]), "settings")
