"""Teams: their namespaces, and what keeps each of them to its own."""

import pytest

from tests.guards.slips import ABSENT, in_manifest, without

_CLUSTER, _NAME = "two-teams", "megatron-eks-team"
_POLICY = "ValidatingAdmissionPolicy/megatron-eks-users"
_BINDING = "ValidatingAdmissionPolicyBinding/megatron-eks-users"
_AT, _TEAM, _EDIT = "spec matchConstraints", f"RoleBinding/{_NAME}", f"RoleBinding/{_NAME}-edit"
_OTHER = [{"kind": "Group", "name": "megatron-eks:vision"}]
_SHARE, _NO_WAY_IN = "ResourceQuota/share", "ResourceQuota/no-way-in"
_CARDS = "spec hard requests.vpc.amazonaws.com/efa"
_LEVEL = "metadata labels pod-security.kubernetes.io"
_VOLUME = "PersistentVolume/two-teams-nlp-fsx-shared-pvc-5c90d719"
_SYSTEM, _SCOPE = "ResourceQuota/no-system-priority", "spec scopeSelector matchExpressions 0"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_POLICY, f"{_AT} namespaceSelector", ABSENT, "TEAM_USER"),
        (_POLICY, f"{_AT} resourceRules 0 resources", ["jobs"], "TEAM_USER"),
        (_POLICY, f"{_AT} resourceRules 1", ABSENT, "TEAM_USER"),
        (_POLICY, "spec failurePolicy", "Ignore", "TEAM_USER"),
        (_POLICY, "spec validations 0 expression", "object.spec.runAsUser == 1", "TEAM_USER"),
        (_POLICY, "metadata name", "users", "TEAM_USER"),
        (_BINDING, "spec validationActions", ["Audit"], "TEAM_USER"),
        (f"ClusterRole/{_NAME}", "rules 0 verbs", ["get", "delete"], "TEAM_RIGHTS"),
        (f"ClusterRole/{_NAME}", "rules", ABSENT, "TEAM_RIGHTS"),
        (f"ClusterRoleBinding/{_NAME}", "subjects 1", ABSENT, "TEAM_RIGHTS"),
        (f"ClusterRoleBinding/{_NAME}", "roleRef name", "cluster-admin", "TEAM_RIGHTS"),
        (f"Role/{_NAME}", "rules 0 verbs", ["get", "list", "watch"], "TEAM_RIGHTS"),
        (f"Role/{_NAME}", "rules 1 resources", ["trainjobs"], "TEAM_RIGHTS"),
        (_TEAM, "subjects", _OTHER, "TEAM_RIGHTS"),
        (_TEAM, "roleRef name", "other", "TEAM_RIGHTS"),
        (_EDIT, "subjects", [], "TEAM_RIGHTS"),
        (_EDIT, "roleRef name", "admin", "TEAM_RIGHTS"),
        (_SHARE, "spec hard requests.nvidia.com/gpu", ABSENT, "TEAM_SHARE"),
        (_SHARE, _CARDS, 9, "TEAM_SHARE"),
        (_NO_WAY_IN, "spec hard services.nodeports", ABSENT, "TEAM_SHARE"),
        ("Namespace/nlp", f"{_LEVEL}/warn-version", ABSENT, "NAMESPACE_LEVEL"),
        (_VOLUME, "spec csi volumeAttributes mountname", "a/teams/vision", "CLAIM_AND_VOLUME"),
        ("NetworkPolicy/job-records", "spec podSelector", {}, "POLICY_MEANING"),
        (_SYSTEM, f"{_SCOPE} values", ["system-node-critical"], "TEAM_SHARE"),
    ],
)
def test_a_slip_is_reported(name, path, value, code):
    """A team would reach what is another's, or could not work."""
    assert code in in_manifest(name, path, value, _CLUSTER)


@pytest.mark.parametrize("name", [_POLICY, _BINDING])
def test_what_is_missing(name):
    """One of the two alone holds nobody back."""
    assert without(name, _CLUSTER) == {"TEAM_USER"}


def test_other_ways_that_work():
    """An administrator's own binding, and a team that may look at more."""
    more = {"kind": "Group", "name": "administrators"}
    assert in_manifest(_TEAM, "subjects", lambda old: [*old, more], _CLUSTER) == set()
    read = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
    role = f"ClusterRole/{_NAME}"
    assert in_manifest(role, "rules", lambda old: [*old, read], _CLUSTER) == set()
