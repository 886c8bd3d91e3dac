"""Every mistake in a cluster file is told: with its level, its code and its place."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.plan.cluster.cluster import check_cluster
from megatron_eks.project import check_documents

GOOD = """\
schema_version: 1
name: demo
region: us-east-2
availability_zones: [us-east-2a, us-east-2b]
kubernetes_version: "1.36"
access:
  admin_role_arns: [arn:aws:iam::123456789012:role/Admin]
  public_cidrs: [8.8.8.0/24]
network:
  vpc_cidr: 10.0.0.0/16
  service_cidr: 172.20.0.0/16
  nat_gateways: 1
  interface_endpoints: [sts]
system_nodes: {instance_type: c5.2xlarge, count: 2}
gpu_pools:
  - name: p4d
    instance_type: p4d.24xlarge
    availability_zone: us-east-2b
    max_nodes: 2
    labels: {}
    ami_release: null
storage:
  lustre:
    capacity_gib: 1200
    mount_path: /shared
tags: {}
"""


def findings(text: str) -> list[str]:
    """Check a cluster file as the entry points do, on a fixed date."""
    document = read_mapping(text, "c.yaml")
    config, found = parse_cluster(document)
    if config is not None:
        found += document.locate(check_cluster(config, date(2026, 11, 21)))
    return [str(finding) for finding in found]


def test_a_correct_file_has_no_finding():
    """The text that every case below changes is correct."""
    assert findings(GOOD) == []


CASES = yaml.safe_load(Path(__file__).with_name("cluster_errors.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["by"].strip() or "removed" for case in CASES])
def test_messages(case):
    """One change to a correct file gives exactly these findings."""
    assert case["replace"] in GOOD
    found = findings(GOOD.replace(case["replace"], case["by"], 1))
    assert [line.partition(": ")[0] for line in found] == case["expect"]
    assert case.get("remedy", "") in "\n".join(found)
    assert "Tr0ub4dor" not in "\n".join(found)


def test_jobs_beside_a_wrong_cluster_are_judged_all_the_same():
    """By what is known of it: none of its mistakes ends the command."""
    files = sorted((Path(__file__).parents[2] / "jobs").glob("*.yaml"))
    jobs = [read_mapping(each.read_text(), each.name) for each in files]
    for case in CASES:
        document = read_mapping(GOOD.replace(case["replace"], case["by"], 1), "c.yaml")
        found = check_documents(document, jobs, date(2026, 11, 21)).findings
        assert {str(each).partition(": ")[0] for each in found} >= set(case["expect"])


def test_sentences(snapshot):
    """Each code's whole sentence, of the first case of the table that finds it."""
    told: dict[str, str] = {}
    for case in CASES:
        if any(line.split()[1] not in told for line in case["expect"]):
            for line in findings(GOOD.replace(case["replace"], case["by"], 1)):
                told.setdefault(line.split()[1], line)
    assert "\n".join(told[code] for code in sorted(told)) == snapshot


def test_everything_is_reported_at_once():
    """Several mistakes in one file are all reported."""
    text = GOOD.replace("capacity_gib: 1200", "capacity_gib: 1").replace("8.8.8.0/24", "0.0.0.0/0")
    text = text.replace("p4d.24xlarge", "p9.metal")
    assert [line.split()[1] for line in findings(text)] == ["MEKS-0205", "MEKS-0201", "MEKS-0210"]


def test_a_second_pool_of_the_same_name_is_refused():
    """Pool names become names of node groups."""
    pool = GOOD[GOOD.index("  - name") : GOOD.index("storage:")]
    assert findings(GOOD.replace("storage:", pool + "storage:", 1)) == [
        (
            "error MEKS-0204 c.yaml:22 gpu_pools[1].name: a pool named 'p4d' stands above - "
            "name each pool apart"
        )
    ]


def test_more_pools_than_eks_takes_are_refused():
    """EKS's default quota is 30 node groups in a cluster, and the system nodes have one."""
    pool = GOOD[GOOD.index("  - name") : GOOD.index("storage:")]
    pools = [pool.replace("name: p4d", f"name: p4d-{number}") for number in range(30)]
    few, many = (GOOD.replace(pool, "".join(pools[:count])) for count in (29, 30))
    assert findings(few) == []
    assert findings(many) == [
        (
            "error MEKS-0229 c.yaml:15 gpu_pools: 30 pools, and EKS's default quota is "
            "30 node groups - use at most 29: the system nodes have one too"
        )
    ]


def test_an_existing_cluster_may_be_in_one_zone_and_closed():
    """How it is reached and where it stands is its owner's affair."""
    text = GOOD.replace("[us-east-2a, us-east-2b]", "[us-east-2b]").replace("[8.8.8.0/24]", "[]")
    text = text.replace("  interface_endpoints: [sts]\n", "").replace(
        "    capacity_gib: 1200",
        "    existing: {id: fs-0123456789abcdef0, dns_name: fs.example.com, mount_name: abcdefgh}",
    )
    assert findings(f"existing_cluster: theirs\n{text}") == []


@pytest.mark.parametrize(
    ("system", "pool", "wrong"),
    [
        ("1.35.8-20260923", "1.35.9-20261012", ""),
        ("1.35.9-20261119", "1.35.8-20260930", "gpu_pools[0].ami_release"),
        ("1.35.8-20261003", "1.35.9-20261119", "system_nodes.ami_release"),
        ("null", "1.35.9-20261119", "system_nodes"),
    ],
)
def test_1_35_needs_releases_whose_kernel_does_not_panic(system, pool, wrong):
    """Nothing is pinned for it, and a command finds what is good today."""
    text = GOOD.replace('"1.36"', '"1.35"').replace("ami_release: null", f"ami_release: {pool}")
    found = findings(text.replace("count: 2}", f"count: 2, ami_release: {system}}}"))
    assert len(found) == bool(wrong)
    for line in found:
        assert line.startswith("error MEKS-0218 ")
        assert f" {wrong}" in line
        assert (
            "/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/release_version"
            in line
        )
