"""Managed Prometheus as moto lacks it: scrapers, and settings of workspaces, which nobody reads."""

import uuid
from datetime import UTC, datetime

from moto.amp.responses import PrometheusServiceResponse
from moto.core.responses import ActionResult

from megatron_eks.localcloud.aws.services.operation import kept, parameters, taken
from megatron_eks.localcloud.aws.values import ACCOUNT


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

    def delete_scraper(self) -> ActionResult:
        """DeleteScraper."""
        scraper = taken(self.amp_backend, "scrapers", parameters(self)["scraperId"])
        return ActionResult({**scraper, "status": {"statusCode": "DELETING"}})

    def update_workspace_configuration(self) -> ActionResult:
        """UpdateWorkspaceConfiguration, of a workspace that is there."""
        self.amp_backend.describe_workspace(parameters(self)["workspaceId"])
        return ActionResult({"status": {"statusCode": "ACTIVE"}})

    def put_alert_manager_definition(self) -> ActionResult:
        """PutAlertManagerDefinition, likewise."""
        return self.update_workspace_configuration()
