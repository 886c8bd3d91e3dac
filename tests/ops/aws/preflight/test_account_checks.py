"""Who asks, what they may do, and how much the account may have."""

from megatron_eks.ops.checks import Unknown
from megatron_eks.ops.cluster.account.facts import Caller, Denied, Quota
from tests.ops.aws.preflight.subjects import project, subject, told

_ANN = "arn:aws:iam::123456789012:user/ann"


def test_nothing_is_found_where_nothing_is_wrong(tmp_path):
    """Silence means that every check passed."""
    assert told(subject(project(tmp_path))) == {}


def test_another_account_than_the_administrators_is_an_error(tmp_path):
    """A profile of yesterday would deploy into the wrong account."""
    judged = subject(project(tmp_path), caller=Caller("210987654321", "arn:aws:iam::2:user/x"))
    assert told(judged)["identity"] == [
        (
            "error MEKS-0820 you are in account 210987654321, and the administrators in "
            "123456789012 "
            "- choose another profile with AWS_PROFILE, or run `meks init` for this account"
        )
    ]


def test_the_root_of_an_account_is_a_warning(tmp_path):
    """It works, and nobody should have its keys."""
    judged = subject(
        project(tmp_path), caller=Caller("123456789012", "arn:aws:iam::123456789012:root")
    )
    assert told(judged)["identity"][0].startswith("warning MEKS-0820 you are the root")


def test_all_denied_actions_are_named_together(tmp_path):
    """One line for each purpose and principal, not one deployment for each."""
    denied = tuple(
        Denied(_ANN, action, "the cluster", explicit)
        for action, explicit in (("eks:CreateCluster", False), ("ec2:RunInstances", True))
    )
    assert told(subject(project(tmp_path), denied=denied))["permissions"] == [
        (
            "error MEKS-0821 not allowed, for the cluster: eks:CreateCluster, ec2:RunInstances "
            "(denied explicitly) - ask who administers the account for them, or deploy as "
            "another role"
        )
    ]


def test_a_quota_names_its_code_and_the_number_to_ask_for(tmp_path):
    """New accounts have none of the P instances."""
    quota = Quota("Running On-Demand P instances", "ec2", "L-417A185B", needed=192, allowed=0)
    assert told(subject(project(tmp_path), quotas=(quota,)))["quotas"] == [
        (
            "error MEKS-0823 'Running On-Demand P instances' is 0 vCPUs, and 192 are needed - aws "
            "service-quotas request-service-quota-increase --service-code ec2 --quota-code "
            "L-417A185B "
            "--desired-value 192"
        )
    ]


def test_what_is_in_use_counts_against_a_quota(tmp_path):
    """Five VPCs are allowed by default, and five are there."""
    quota = Quota("VPCs per Region", "vpc", "L-F678F1CE", needed=1, used=5, allowed=5)
    (line,) = told(subject(project(tmp_path), quotas=(quota,)))["quotas"]
    assert line.startswith(
        "error MEKS-0824 'VPCs per Region' is 5, 5 are in use, and 1 are needed - "
    )
    assert line.endswith("--desired-value 6")
    exact = Quota("VPCs per Region", "vpc", "L-F678F1CE", needed=1, used=4, allowed=5)
    assert told(subject(project(tmp_path), quotas=(exact,))) == {}


def test_what_could_not_be_looked_up_is_no_passed_check(tmp_path):
    """It stands at the check that lacks it."""
    unknown = Unknown("quotas", "the quota 'X': not allowed: servicequotas:GetServiceQuota", "ask")
    judged = subject(project(tmp_path), unknown=[unknown])
    assert told(judged) == {
        "quotas": [
            "warning MEKS-0822 the quota 'X': not allowed: servicequotas:GetServiceQuota - ask"
        ]
    }
