"""The CDK's part of a deployment without its command line, which takes five seconds a call."""

import gc
import json
from pathlib import Path

from megatron_eks.localcloud.aws.values import ACCOUNT
from megatron_eks.ops.aws.cdk import Cdk
from megatron_eks.ops.aws.session import Aws
from megatron_eks.project import load_project
from tests.ops.aws.fakes import ACCOUNT as OTHER
from tests.ops.aws.fakes import CLUSTER, TODAY
from tests.stacks.synthesis import app_of, write_sources

ROLE = "Admin"
LOCAL_CLUSTER = CLUSTER.replace(OTHER, ACCOUNT)


class QuickCdk(Cdk):
    """Synthesises in this process, and makes change sets from templates as they are."""

    def __init__(self, cluster_file: Path, folder: Path, aws: Aws) -> None:
        super().__init__(cluster_file, aws.region, folder / "cdk.out")
        self._aws, self._sources = aws, folder / "sources"

    def synth(self) -> None:
        """Write the cloud assembly."""
        if not self._sources.exists():
            write_sources(self._sources)
        plan = load_project(self.cluster_file, TODAY.date()).cluster
        app_of(plan, self._sources, self.folder).synth()
        gc.collect()

    def bootstrap(self, account: str) -> None:
        """Leave the mark of a bootstrap."""
        del account
        ssm = self._aws.client("ssm")
        ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="29", Type="String")

    def prepare(self, stack: str, change_set: str, *, import_existing: bool) -> None:
        """Make a change set, and remove it where nothing changes, as the CDK does."""
        cloudformation = self._aws.client("cloudformation")
        present = cloudformation.describe_stacks()["Stacks"]
        found = [each for each in present if each["StackName"] == stack]
        body = json.dumps(self.template(stack), separators=(",", ":"))
        if found and found[0]["StackStatus"] == "ROLLBACK_COMPLETE":
            cloudformation.delete_stack(StackName=stack)
            found = []
        cloudformation.create_change_set(
            StackName=stack,
            ChangeSetName=change_set,
            ChangeSetType="UPDATE" if found else "CREATE",
            TemplateBody=body,
            Capabilities=["CAPABILITY_NAMED_IAM"],
            ImportExistingResources=import_existing,
        )
        made = cloudformation.describe_change_set(StackName=stack, ChangeSetName=change_set)
        if made["Status"] == "FAILED":
            assert "didn't contain changes" in made["StatusReason"], made["StatusReason"]
            cloudformation.delete_change_set(StackName=stack, ChangeSetName=change_set)
