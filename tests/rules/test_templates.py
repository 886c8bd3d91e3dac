"""Every mistake in a template gives one exact finding; the correct variations give none."""

import pytest

from megatron_eks.rules.template_registry import TEMPLATE_RULES
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.templates import check_template, check_templates, is_template
from tests.rules import cases

TABLES = (
    *(
        "branches",
        "chosen_and_covered",
        "conditions_and_notices",
        "controls",
        "details",
        "details_of_others",
        "files_of_others",
        "edited_stacks",
        "groups_and_roles",
        "held_out_infrastructure",
        "held_out_networks",
        "held_out_templates",
        "inverted",
        "lacking",
        "nodes",
        "own_nodes",
        "pod_roles",
        "properties",
        "refusals",
        "refused_by_services",
        "refused_templates",
        "relations_of_templates",
        "rights_and_limits",
        "security_groups",
    ),
    *(
        "defaults_and_places",
        "starts_of_others",
        "storage_and_capacity",
        "ways_and_order",
        "wiring",
    ),
)
CASES = [case for table in TABLES for case in cases.read(f"tables/{table}.yaml")]


def test_good_templates_have_no_finding():
    """The templates that every case changes are correct, together and one by one."""
    templates = cases.good_templates()
    assert cases.findings_in_templates(templates) == []
    assert [found for template in templates.values() for found in check_template(template)] == []


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_findings(case):
    """Each change of the good templates gives exactly these findings."""
    assert cases.findings_in_templates(cases.templates_of(case)) == case["expect"]


def test_every_rule_has_a_mistake_and_a_source():
    """No rule is without a case that needs it, and none without its reason."""
    sets = [TemplateSet(cases.templates_of(case)) for case in CASES]
    for rule in TEMPLATE_RULES:
        assert "\n" in (rule.__doc__ or ""), rule.__name__
        assert any(list(rule(templates)) for templates in sets), rule.__name__
    codes = {line.split()[1] for case in CASES for line in case["expect"]}
    numbers = (*range(1, 29), 35, *range(40, 50), 51, *range(60, 69), *range(70, 80))
    # The last is of an object that a template of the CDK applies.
    others = {"MEKS-0591", "MEKS-0677"}
    assert codes == {f"MEKS-05{number:02}" for number in numbers} | others


def test_exports_of_the_same_name_are_not_followed():
    """Where two stacks export one name nobody can tell which group is meant."""
    templates = cases.templates_of({"drop": ["ToNodes"]})
    templates["Copy"] = {"Resources": {}, "Outputs": templates["Network"]["Outputs"]}
    assert list(check_templates(templates)) == []


def test_a_group_and_its_rules_in_one_template():
    """Without other templates a group is judged where it is defined."""
    templates = cases.templates_of({"drop": ["FromServers1018"]})
    (finding,) = check_template(templates["Storage"])
    assert finding.path == ("Resources", "FromServers988")


def test_templates_are_told_from_other_files():
    """A template is known by its resources or by its version."""
    assert is_template(cases.good_templates()["Cluster"])
    assert is_template({"AWSTemplateFormatVersion": "2010-09-09"})
    assert not is_template({"Resources": {"A": {"Type": "no"}}})
    assert not is_template({"Resources": ["A"]})
    assert not is_template([])
