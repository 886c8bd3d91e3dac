"""A container's words and variables, where a running pod would show one case at a time."""

import pytest

from megatron_eks.localcloud.kubernetes.kubelet.environment import (
    ConfigError,
    command,
    expand,
    variables,
)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)$(B)y", "x12y"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$", "$$"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("$()", "$()"),
    ],
)
def test_expansion(text, expanded):
    """As Kubernetes' own package has it, not as a shell."""
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_arguments_without_a_command_go_to_the_image():
    """A command of the container's own takes the place of the entry point, arguments do not."""
    assert command({"args": ["$(A)"]}, ("run",), {"A": "1"}) == ["run", "1"]
    assert command({"command": ["mine"], "args": ["x"]}, ("run",), {}) == ["mine", "x"]


def test_a_variable_sees_those_before_it_and_wins_over_those_from_elsewhere():
    """Later ones are not known yet, and stay as they are written."""
    container = {
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
        "env": [
            {"name": "FIRST", "value": "$(P_A)-$(SECOND)"},
            {"name": "SECOND", "value": "$(FIRST)"},
            {"name": "P_B", "value": "own"},
        ],
    }
    found = variables(container, {}, lambda *_: {"A": "a", "B": "b"})
    assert found == {"P_A": "a", "P_B": "own", "FIRST": "a-$(SECOND)", "SECOND": "a-$(SECOND)"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"secretKeyRef": {"name": "s", "key": "k"}}, 'secret "s" not found'),
        ({"configMapKeyRef": {"name": "c", "key": "k"}}, "couldn't find key k in ConfigMap n/c"),
        ({"fieldRef": {"fieldPath": "status.phase"}}, "unsupported fieldPath: status.phase"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "no process plays resourceFieldRef"),
    ],
)
def test_a_missing_value_is_named(reference, message):
    """In the words of a kubelet, which people search for."""
    pod = {"metadata": {"namespace": "n"}, "spec": {}, "status": {}}
    container = {"env": [{"name": "X", "valueFrom": reference}]}
    with pytest.raises(ConfigError, match=message):
        variables(container, pod, lambda kind, _: {} if kind == "ConfigMap" else None)
