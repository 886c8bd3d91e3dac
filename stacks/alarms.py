"""CloudWatch's alarms and EventBridge's rules, all told to one topic."""

from collections.abc import Mapping, Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from megatron_eks.plan.cluster.lustre import LustrePlan
from megatron_eks.plan.cluster.observability import BlockWarning

_GIB, _MIB = 2**30, 2**20
_FULL_PERCENT, _BUSY_PERCENT = 10, 90


class Alarms:
    """What of a cluster is told; not a construct, so that ids stay short."""

    def __init__(self, scope: Construct, name: str, topic: str) -> None:
        self._scope, self._name, self._topic = scope, name, topic

    def lustre(self, file_system: fsx.CfnFileSystem, lustre: LustrePlan) -> None:
        """See a file system that fills, or is as busy as it can be."""

        def metric(
            name: str, key: str, statistic: str
        ) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
            return _query(key, "AWS/FSx", name, {"FileSystemId": file_system.ref}, statistic)

        suffix = lustre.output_suffix
        capacity = lustre.capacity_gib * _GIB
        # Writes fail once one target is full, while the sum still looks fine.
        self._alarm(
            f"FileSystemFull{suffix}",
            f"the fullest part of the file system in {lustre.zone} has {_FULL_PERCENT} % left: "
            "meks ckpt ls, then meks ckpt prune",
            [
                metric("FreeDataStorageCapacity", "fullest", "Minimum"),
                metric("FreeDataStorageCapacity", "targets", "SampleCount"),
            ],
            f"100 * fullest * targets / {capacity}",
            below=_FULL_PERCENT,
            minutes=5,
        )
        rate = lustre.throughput_mbps_per_tib * lustre.capacity_gib / 1024 * _MIB
        self._alarm(
            f"FileSystemBusy{suffix}",
            f"the file system in {lustre.zone} has been at its throughput for half an hour: raise "
            "storage.lustre.throughput_mbps_per_tib, or save less often",
            [metric("DataReadBytes", "read", "Sum"), metric("DataWriteBytes", "written", "Sum")],
            f"100 * (read + written) / 60 / {rate:.0f}",
            above=_BUSY_PERCENT,
            minutes=30,
        )

    def nat(self, zone: str, gateway: str) -> None:
        """See connections that fail because a NAT gateway has no port left for them."""
        ports = _query(
            "errors",
            "AWS/NATGateway",
            "ErrorPortAllocation",
            {"NatGatewayId": gateway},
            "Sum",
            alone=True,
        )
        self._alarm(
            f"NatPorts-{zone}",
            f"the NAT gateway in {zone} has no free port: downloads fail; set "
            "network.nat_gateways: per_zone, or fetch once and share",
            [ports],
            None,
            above=0,
            minutes=5,
        )

    def _alarm(
        self,
        name: str,
        description: str,
        metrics: Sequence[cloudwatch.CfnAlarm.MetricDataQueryProperty],
        expression: str | None,
        *,
        minutes: int,
        above: float | None = None,
        below: float | None = None,
    ) -> None:
        comparison = "GreaterThanThreshold" if below is None else "LessThanThreshold"
        result = [
            cloudwatch.CfnAlarm.MetricDataQueryProperty(
                id="result", expression=each, return_data=True
            )
            for each in ([expression] if expression else [])
        ]
        cloudwatch.CfnAlarm(
            self._scope,
            name,
            alarm_name=f"{self._name}-{name}",
            alarm_description=description,
            metrics=[*result, *metrics],
            comparison_operator=comparison,
            threshold=above if below is None else below,
            evaluation_periods=minutes,
            datapoints_to_alarm=minutes,
            treat_missing_data="notBreaching",
            alarm_actions=[self._topic],
            ok_actions=[self._topic],
        )

    def node_launches(self, pools: Sequence[str]) -> None:
        """Tell of nodes that EC2 could not start: their node group waits and says nothing."""
        names = [{"prefix": f"eks-{pool}-"} for pool in pools]
        self._on(
            "NodeLaunch",
            "no GPU node: <group>: <why>; meks preflight aws",
            {"group": "$.detail.AutoScalingGroupName", "why": "$.detail.StatusMessage"},
            source="aws.autoscaling",
            kinds=["EC2 Instance Launch Unsuccessful"],
            detail={"AutoScalingGroupName": names},
        )

    def builds(self, images: Sequence[str]) -> None:
        """Tell of builds that fail."""
        projects = [f"{self._name}-{image}" for image in images]
        self._on(
            "Build",
            "the build of <project> failed; meks build says why",
            {"project": "$.detail.project-name"},
            source="aws.codebuild",
            kinds=["CodeBuild Build State Change"],
            detail={"build-status": ["FAILED", "FAULT", "TIMED_OUT"], "project-name": projects},
        )

    def _on(
        self,
        name: str,
        template: str,
        paths: Mapping[str, str],
        *,
        source: str,
        kinds: Sequence[str],
        detail: Mapping[str, object],
    ) -> None:
        transformer = events.CfnRule.InputTransformerProperty(
            input_paths_map=dict(paths), input_template=f'"{self._name}: {template}"'
        )
        events.CfnRule(
            self._scope,
            name,
            event_pattern={"source": [source], "detail-type": list(kinds), "detail": dict(detail)},
            targets=[
                events.CfnRule.TargetProperty(
                    arn=self._topic, id="topic", input_transformer=transformer
                )
            ],
        )

    def block_end(self, warning: BlockWarning) -> None:
        """Tell once of a Capacity Block's end: a schedule of one minute in one year."""
        at = warning.at
        text = (
            f"{self._name}: the Capacity Block of pool {warning.pool} ends in "
            f"{warning.hours} h; EKS gives its nodes back 40 minutes before. meks status"
        )
        events.CfnRule(
            self._scope,
            f"BlockEnd-{warning.pool}-{warning.hours}h",
            schedule_expression=f"cron({at.minute} {at.hour} {at.day} {at.month} ? {at.year})",
            targets=[events.CfnRule.TargetProperty(arn=self._topic, id="topic", input=f'"{text}"')],
        )


def _query(
    key: str,
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str,
    *,
    alone: bool = False,
) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
    return cloudwatch.CfnAlarm.MetricDataQueryProperty(
        id=key,
        return_data=alone,
        metric_stat=cloudwatch.CfnAlarm.MetricStatProperty(
            metric=cloudwatch.CfnAlarm.MetricProperty(
                namespace=namespace,
                metric_name=name,
                dimensions=[
                    cloudwatch.CfnAlarm.DimensionProperty(name=each, value=value)
                    for each, value in dimensions.items()
                ],
            ),
            period=60,
            stat=statistic,
        ),
    )
