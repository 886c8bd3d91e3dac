"""The Observability stack: what it tells, to whom, and what it leaves as it was."""

import base64

import pytest
import yaml

from megatron_eks.catalog import kueue
from megatron_eks.charts.platform.dcgm_exporter import COUNTERS
from megatron_eks.plan.cluster.alerts import ALERTS
from megatron_eks.plan.cluster.observability import (
    DCGM_EXPORTER,
    METRICS_PORT_NAME,
    SERIES_PER_GPU,
)
from megatron_eks.plan.cost import cluster_cost, stack_costs
from tests import variations
from tests.stacks.synthesis import ROOT

ENDS = "2027-02-15T11:30:00Z"


def watched(cluster):
    """Switch everything on, for a pool in a Capacity Block."""
    cluster["observability"] = {
        "enabled": True,
        "alarm_email": "ops@example.com",
        "monthly_budget_usd": 5000,
    }
    (pool,) = cluster["gpu_pools"]
    pool["capacity"] = {"type": "capacity_block", "id": "cr-0123456789abcdef0", "ends_at": ENDS}


@pytest.fixture
def template(changed):
    """Return the template with everything."""
    return changed(watched).template("Observability")


def alarm(template, name):
    """Return an alarm, and what its expression gives for values of its metrics."""
    (found,) = (each for each in template.properties("AWS::CloudWatch::Alarm") if name in str(each))
    (expression,) = (each["Expression"] for each in found["Metrics"] if each["ReturnData"])
    ids = {each["Id"] for each in found["Metrics"] if not each["ReturnData"]}

    def result(**values):
        assert values.keys() == ids
        return eval(expression, {}, values)  # noqa: S307 -- our own, in arithmetic that both know

    return found, result


def test_the_fullest_part_of_the_file_system_counts(template):
    """Nine of ten targets may be empty: writes to the full one fail."""
    found, percent_left = alarm(template, "FileSystemFull")
    one = 1200 * 2**30 / 10
    assert percent_left(fullest=one / 2, targets=10) == pytest.approx(50)
    assert percent_left(fullest=one * 0.09, targets=10) < found["Threshold"]
    assert found["ComparisonOperator"] == "LessThanThreshold"


def test_the_file_system_at_its_throughput(template):
    """1.2 TiB at 500 MB/s each: reading and writing count together."""
    found, percent = alarm(template, "FileSystemBusy")
    minute = 60 * 500 * 2**20 * 1200 / 1024
    assert percent(read=minute / 2, written=minute / 2) == pytest.approx(100)
    assert percent(read=minute / 2, written=0) < found["Threshold"]
    assert found["DatapointsToAlarm"] == found["EvaluationPeriods"] == 30


def test_a_block_that_ends_is_told_three_times(template):
    """A day, four hours and one hour before, in that year alone."""
    schedules = [
        each["ScheduleExpression"]
        for each in template.properties("AWS::Events::Rule")
        if "ScheduleExpression" in each
    ]
    assert sorted(schedules) == [
        "cron(30 10 15 2 ? 2027)",
        "cron(30 11 14 2 ? 2027)",
        "cron(30 7 15 2 ? 2027)",
    ]


def test_whoever_tells_may_write_to_the_topic_and_use_its_key(template):
    """Alarms, events, the budget and the alert manager, or they say nothing at all."""
    _, policy = template.only("AWS::SNS::TopicPolicy")
    _, key = template.only("AWS::KMS::Key")
    for statements in (policy["PolicyDocument"]["Statement"], key["KeyPolicy"]["Statement"]):
        allowed = [each["Principal"] for each in statements if each["Effect"] == "Allow"]
        for service in ("cloudwatch", "events", "budgets", "aps"):
            assert f"{service}.amazonaws.com" in str(allowed)
    topic = {"Ref": "Topic"}
    for each in template.properties("AWS::CloudWatch::Alarm"):
        assert each["AlarmActions"] == each["OKActions"] == [topic]
    for each in template.properties("AWS::Events::Rule"):
        assert [target["Arn"] for target in each["Targets"]] == [topic]


def test_the_scraper_asks_the_exporter_that_the_platform_has(template):
    """By the name of its Service; the plan's costs count its metrics."""
    _, scraper = template.only("AWS::APS::Scraper")
    blob = base64.b64decode(scraper["ScrapeConfiguration"]["ConfigurationBlob"])
    gpus, training, *_ = yaml.safe_load(blob)["scrape_configs"]
    assert gpus["relabel_configs"][0]["regex"] == DCGM_EXPORTER
    assert training["relabel_configs"][0]["regex"] == METRICS_PORT_NAME
    assert len(scraper["Source"]["EksConfiguration"]["SubnetIds"]) == 2
    assert len(COUNTERS) == SERIES_PER_GPU


@pytest.mark.parametrize("place", [lambda _: None, variations.existing_cluster_and_lustre])
def test_a_prometheus_of_ones_own(changed, place):
    """No workspace, no scraper, and no VPC is asked for; what AWS itself tells of stays."""

    def edit(cluster):
        place(cluster)
        watched(cluster)
        cluster["observability"] |= {"metrics": "own", "prometheus_url": "http://prometheus:9090"}

    assembly = changed(edit)
    template = assembly.template("Observability")
    kinds = {each["Type"] for each in template.resources.values()}
    assert not {each for each in kinds if each.startswith(("AWS::APS", "AWS::Logs"))}
    assert {"AWS::Events::Rule", "AWS::Budgets::Budget"} <= kinds
    assert ("AWS::CloudWatch::Alarm" in kinds) is ("Cluster" in assembly.plan.stacks)
    assert "Observability" not in stack_costs(assembly.plan)
    assert not any("Metrics" in note for note in cluster_cost(assembly.plan).notes)


def test_the_address_of_a_webhook_is_in_no_template(changed):
    """CloudFormation reads it; the template has the name of the secret."""

    def edit(cluster):
        cluster["observability"] = {"enabled": True, "webhook_secret": "prod/alarms"}

    _, webhook = changed(edit).template("Observability").only("AWS::SNS::Subscription")
    assert webhook == {
        "TopicArn": {"Ref": "Topic"},
        "Protocol": "https",
        "Endpoint": "{{resolve:secretsmanager:prod/alarms:SecretString}}",
    }


def test_the_scraper_asks_the_jobs_of_all_teams_and_their_queues(changed):
    """A team without metrics would not know that it has none."""

    def edit(cluster):
        cluster["observability"] = {"enabled": True}
        cluster["platform"] = {"kueue": True}
        role = "arn:aws:iam::111122223333:role/"
        cluster["teams"] = [
            {"name": name, "role_arns": [f"{role}{name}"], "gpus": 8} for name in ("nlp", "vision")
        ]

    _, scraper = changed(edit).template("Observability").only("AWS::APS::Scraper")
    blob = base64.b64decode(scraper["ScrapeConfiguration"]["ConfigurationBlob"])
    found = {each["job_name"]: each for each in yaml.safe_load(blob)["scrape_configs"]}
    (spaces,) = found["training"]["kubernetes_sd_configs"]
    assert {"nlp", "vision"} <= set(spaces["namespaces"]["names"])
    (waiting,) = found["kueue"]["kubernetes_sd_configs"]
    assert waiting["namespaces"] == {"names": [kueue.NAMESPACE]}
    assert found["kueue"]["scheme"] == "https"


def test_each_alert_is_in_the_docs():
    """By its name, as a mail has it."""
    page = (ROOT / "docs" / "observability.md").read_text()
    assert [alert.name for alert in ALERTS if f"| `{alert.name}` |" not in page] == []


def test_nothing_else_changes(changed, assembly):
    """Switched on, the other stacks keep every resource as it is."""
    after = changed(lambda cluster: cluster.update(observability={"enabled": True})).templates()
    after.pop("Observability")
    assert after.keys() == assembly.templates().keys()
    for part, template in assembly.templates().items():
        assert after[part].resources == template.resources


def test_a_cluster_that_exists_is_watched_too(changed):
    """By its name, from the subnets that the file names."""

    def edit(cluster):
        variations.existing_cluster(cluster)
        cluster["observability"] = {"enabled": True}

    assembly = changed(edit)
    _, scraper = assembly.template("Observability").only("AWS::APS::Scraper")
    source = scraper["Source"]["EksConfiguration"]
    assert f"cluster/{assembly.plan.eks_name}" in str(source["ClusterArn"])
    assert set(source["SubnetIds"]) <= set(assembly.plan.network.existing.private_subnets.values())
