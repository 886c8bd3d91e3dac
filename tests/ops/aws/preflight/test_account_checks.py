"""Who asks, what they may do, and how much the account may have."""

from tests.ops.aws.preflight.subjects import gone, project, told


def test_nothing_is_found_where_nothing_is_wrong(tmp_path):
    """Silence means that every check passed."""
    assert told(project(tmp_path)) == {}


def test_another_account_than_the_administrators_is_an_error(tmp_path):
    """A profile of yesterday would deploy into the wrong account; its root is not simulated."""
    root = {"Arn": "arn:aws:iam::210987654321:root"}
    assert told(project(tmp_path), get_caller_identity=root, get_parameter=None) == {
        "identity": [
            (
                "error MEKS-0820 you are in account 210987654321, and the administrators in "
                "123456789012 - choose another profile with AWS_PROFILE, or run `meks init` for "
                "this account"
            )
        ]
    }


def test_all_denied_actions_are_named_together(tmp_path):
    """One line for each purpose and principal, not one deployment for each."""

    def simulated(PolicySourceArn, ActionNames, **_):  # noqa: N803 -- as IAM is asked
        denied = {"eks:ListNodegroups": "implicitDeny", "eks:DescribeCluster": "explicitDeny"}
        found = {name: denied.get(name, "allowed") for name in ActionNames}
        if "role/" in PolicySourceArn:
            found = dict.fromkeys(ActionNames, "allowed")
        rows = [{"EvalActionName": name, "EvalDecision": found[name]} for name in found]
        return {"EvaluationResults": rows}

    lines = told(project(tmp_path), simulate_principal_policy=simulated)["permissions"]
    assert lines == [
        (
            "error MEKS-0821 not allowed, for meks kubeconfig: eks:DescribeCluster (denied "
            "explicitly), eks:ListNodegroups - ask who administers the account for them, or deploy "
            "as another role"
        )
    ]


def test_a_quota_names_its_code_and_the_number_to_ask_for(tmp_path):
    """New accounts have none of the P instances."""

    def quota(QuotaCode, **_):  # noqa: N803 -- as Service Quotas is asked
        return {"Quota": {"Value": 0 if QuotaCode == "L-417A185B" else 16}}

    assert told(project(tmp_path), get_service_quota=quota)["quotas"] == [
        (
            "error MEKS-0823 'Running On-Demand P instances' is 0 vCPUs, and 192 are needed - aws "
            "service-quotas request-service-quota-increase --service-code ec2 --quota-code "
            "L-417A185B "
            "--desired-value 192"
        )
    ]


def test_what_could_not_be_looked_up_is_no_passed_check(tmp_path):
    """It stands at the check that lacks it."""
    denied = gone("UnauthorizedOperation")
    found = told(project(tmp_path), describe_instance_type_offerings=denied)
    assert list(found) == ["zones offer the types"]
    assert found["zones offer the types"][0].startswith(
        "warning MEKS-0822 not allowed: ec2:Describe - "
    )
