"""Rules over CloudWatch's alarms: what is refused, and what no metric ever answers."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text

_SHORT, _MINUTE, _HOUR, _DAY, _WEEK = (10, 20, 30), 60, 3600, 86400, 604800
# The dimensions of each namespace: FSx for Lustre User Guide, "Amazon FSx for Lustre metrics and
# dimensions", and the same of each service; aws-cdk-lib, "canned metrics".
_DIMENSIONS: dict[str, tuple[str, ...]] = {
    "AWS/AutoScaling": ("AutoScalingGroupName",),
    "AWS/Billing": ("Currency", "LinkedAccount", "ServiceName"),
    "AWS/CodeBuild": ("BuildId", "BuildNumber", "ProjectName"),
    "AWS/EBS": ("VolumeId",),
    "AWS/EC2": ("AutoScalingGroupName", "ImageId", "InstanceId", "InstanceType"),
    "AWS/EC2CapacityReservations": (
        *("AvailabilityZone", "CapacityReservationId", "InstanceMatchCriteria", "InstanceType"),
        *("Platform", "Tenancy"),
    ),
    "AWS/EFS": ("FileSystemId", "StorageClass"),
    "AWS/FSx": (
        *("Aggregate", "DataType", "FileCacheId", "FileServer", "FileSystemId", "Publisher"),
        *("StorageTargetId", "StorageTier", "StorageVirtualMachineId", "VolumeId"),
    ),
    "AWS/NATGateway": ("NatGatewayId",),
    "AWS/S3": ("BucketName", "FilterId", "StorageType"),
    "AWS/SQS": ("QueueName",),
}
# What tells of trouble when it falls, in bytes or credits; each service's "CloudWatch metrics".
_LEFT = frozenset({"BurstCreditBalance", "FreeDataStorageCapacity", "FreeStorageCapacity"})
# What is never above 100: of EC2, FSx and EFS, and of Container Insights.
_PERCENT = re.compile(
    r"CPUUtilization|FileServerDiskThroughputUtilization|NetworkThroughputUtilization|PercentIOLimit"
    r"|StorageCapacityUtilization|InstanceUtilization"
    r"|(node|pod|container)_([a-z_]+_)?(utilization|reserved_capacity)(_over_[a-z_]+)?"
)
_MOST_PERCENT = 100
_ABOVE = frozenset({"GreaterThanOrEqualToThreshold", "GreaterThanThreshold"})


def alarms(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse numbers that CloudWatch refuses, and warn of what no metric ever answers.

    CloudWatch API, PutMetricAlarm: Period, EvaluationPeriods, DatapointsToAlarm, Statistic;
    CloudWatch User Guide, "Dimensions": each combination of names and values is another metric, so
    the alarm stays in INSUFFICIENT_DATA.
    """
    for alarm in templates.resources("AWS::CloudWatch::Alarm"):
        yield from _numbers(alarm, templates)
        yield from _threshold(alarm, templates)
        yield from _metric(alarm, templates)


def _numbers(alarm: Resource, templates: TemplateSet) -> Iterator[Finding]:
    given = {key: templates.default(each, alarm.file) for key, each in alarm.properties.items()}
    period, times = number(given.get("Period")), number(given.get("EvaluationPeriods"))
    enough = number(given.get("DatapointsToAlarm"))
    if period is not None and period not in _SHORT and (period < 1 or period % _MINUTE):
        found = f"a period of {period} s: CloudWatch refuses the alarm"
        yield _refused(alarm, "Period", found, "write 10, 20, 30 or a multiple of 60")
    elif period and times and period * times > (_DAY if period < _HOUR else _WEEK):
        longest = "a day" if period < _HOUR else "7 days"
        found = f"{times} periods of {period} s are more than {longest}: CloudWatch refuses the "
        yield _refused(alarm, "EvaluationPeriods", f"{found}alarm", "take fewer or shorter ones")
    if enough and times and enough > times:
        found = f"{enough} data points of {times} periods: CloudWatch refuses the alarm"
        yield _refused(alarm, "DatapointsToAlarm", found, f"write {times} or less")
    both = [key for key in ("Statistic", "ExtendedStatistic") if not is_absent(given.get(key))]
    if len(both) > 1:
        found = "Statistic and ExtendedStatistic: CloudWatch refuses the alarm"
        yield _refused(alarm, "ExtendedStatistic", found, "keep one of them")
    elif not both and not is_absent(given.get("MetricName")):
        found = "a metric without a statistic: CloudWatch refuses the alarm"
        yield _refused(alarm, "Statistic", found, "add Statistic, such as Average")


def _threshold(alarm: Resource, templates: TemplateSet) -> Iterator[Finding]:
    """Warn of an alarm that never rings, or always: by its direction, or by another unit."""
    given = {key: templates.default(each, alarm.file) for key, each in alarm.properties.items()}
    name, limit = text(given.get("MetricName")) or "", given.get("Threshold")
    compared = text(given.get("ComparisonOperator")) or ""
    size = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    size = number(limit) if size is None else size
    ours = (text(given.get("Namespace")) or "").startswith(("AWS/", "ContainerInsights"))
    if size is None or not ours:
        return
    if name in _LEFT and compared in _ABOVE:
        found = f"rings while {name} is above {shown(limit)}, so while all is well"
        yield _silent(alarm, "ComparisonOperator", found, "write LessThanThreshold")
    elif name in _LEFT and 1 < size <= _MOST_PERCENT:
        found = f"{shown(limit)}, and {name} is in bytes: the alarm never rings"
        yield _silent(alarm, "Threshold", found, "write a number of bytes, such as 100000000000")
    # A statistic that adds up goes beyond what one value can be.
    adds = text(given.get("Statistic")) in {"Sum", "SampleCount"}
    most = size > _MOST_PERCENT or (size == _MOST_PERCENT and compared == "GreaterThanThreshold")
    if _PERCENT.fullmatch(name) and compared in _ABOVE and most and not adds:
        found = f"above {shown(limit)}, and {name} is a percentage: the alarm never rings"
        yield _silent(alarm, "Threshold", found, "write a number below 100")


def _metric(alarm: Resource, templates: TemplateSet) -> Iterator[Finding]:
    space = text(alarm.properties.get("Namespace")) or ""
    same = [each for each in _DIMENSIONS if each.lower() == space.lower()]
    if same and space not in same:
        found = f"no metric in {shown(space)}, whose letters count: the alarm has no data"
        yield _silent(alarm, "Namespace", found, f"write {same[0]}")
    known = _DIMENSIONS.get(space)
    listed = [mapping(each) for each in items(alarm.properties.get("Dimensions")) or []]
    names = [text((each or {}).get("Name")) or "" for each in listed]
    for name in names if known else ():
        if known and name and name not in known and not is_placeholder(name):
            found = f"{space} has no dimension {shown(name)}: the alarm has no data"
            yield _silent(alarm, "Dimensions", found, choices(name, known))
    if space == "AWS/Billing" and "Currency" not in names and alarm.properties.get("MetricName"):
        found = "AWS/Billing without a currency: the alarm has no data"
        yield _silent(alarm, "Dimensions", found, "add Name: Currency, Value: USD")
    if space == "AWS/FSx" and alarm.properties.get("MetricName") == "FreeStorageCapacity":
        values: list[Json] = [(each or {}).get("Value") for each in listed]
        for system in templates.targets(values, alarm.file):
            if system is not None and system.properties.get("FileSystemType") == "LUSTRE":
                found = "Lustre has no FreeStorageCapacity: the alarm has no data"
                yield _silent(alarm, "MetricName", found, "write FreeDataStorageCapacity")


def _refused(alarm: Resource, key: str, found: str, remedy: str) -> Finding:
    return alarm.find(Code.ALARM, (key,), found, remedy)


def _silent(alarm: Resource, key: str, found: str, remedy: str) -> Finding:
    return alarm.find(Code.ALARM, (key,), found, remedy, Level.WARNING)
