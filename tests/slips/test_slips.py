"""The parts of `make slips`: the changes, the denominator, the choice, and who is asked."""

import json

import pytest
import yaml

from tests.slips import population, scenes, tools
from tests.slips.__main__ import Judges
from tests.slips.operators import mutants
from tests.slips.results import SURVIVORS, Noticed, Results

pytestmark = pytest.mark.sweep

CONTAINER = {"image": "fsdp:1", "tty": True, "ports": [23456], "args": ["--rank", "2"]}

STORAGE = "stacks/Storage"
MISSPELT_PROPERTY = "misspell key: FSx::FileSystem.FileSystemType"
PLUGIN = "platform/31-efa-device-plugin"
MISSPELT_FIELD = "misspell key: DaemonSet.spec.selector"
TWICE = "duplicate: DaemonSet.spec.template.spec.volumes.#"
STORAGE_CHECK = "validation/storage"
PRIVILEGED = "turn: Job.spec.template.spec.containers.#.securityContext.allowPrivilegeEscalation"
JOB = "jobs/megatron"
FEWER_GPUS = (
    "one less: PyTorchJob.spec.pytorchReplicaSpecs.Worker.template.spec.containers.#.resources"
    ".limits.nvidia.com/gpu"
)
LABEL = "misspell: PyTorchJob.metadata.labels.megatron-eks/job"


def of(root):
    """Return the whole after each change, by operator and place."""
    return {(each.operator, each.place): each.of(root) for each in mutants(root)}


def of_without(key):
    """Return the container less a key."""
    return {name: value for name, value in CONTAINER.items() if name != key}


def slip(row, line):
    """Return one slip of the population."""
    (found,) = (each for each in population.population() if str(each) == f"{row} {line}")
    return found


def notices(says, found):
    """Tell whether a judge says more with a slip than without it."""
    scene = scenes.before(found)
    assert says(scene) == frozenset()
    return says(scenes.after(scene, found)) != frozenset()


def test_each_operator_changes_one_place():
    """A key goes or is misspelt; a value has another type, letter, sign or size, or comes twice."""
    changed = of(CONTAINER)
    assert "tty" not in changed["drop", ("tty",)]
    assert changed["misspell key", ("image",)] == {**of_without("image"), "imge": "fsdp:1"}
    assert changed["misspell", ("image",)] == {**CONTAINER, "image": "fsd:1"}
    assert changed["retype", ("image",)] == {**CONTAINER, "image": ["fsdp:1"]}
    assert changed["turn", ("tty",)] == {**CONTAINER, "tty": False}
    assert changed["one more", ("ports", 0)] == {**CONTAINER, "ports": [23457]}
    assert changed["one less", ("args", 1)] == {**CONTAINER, "args": ["--rank", "1"]}
    assert changed["duplicate", ("ports", 0)] == {**CONTAINER, "ports": [23456, 23456]}
    assert changed["swap", ("ports",)] == {**CONTAINER, "ports": CONTAINER["args"], "args": [23456]}


def test_an_order_counts_where_it_means_something():
    """Arguments have an order, tolerations have none."""
    assert ("swap", ("args", 1)) in of({"args": ["--rank", "2"]})
    assert ("swap", ("tolerations", 1)) not in of({"tolerations": [{"key": "a"}, {"key": "b"}]})


def test_what_did_not_change_is_shared():
    """Thousands of changed templates fit into memory."""
    root = {"Resources": {"Vpc": {"Type": "AWS::EC2::VPC"}, "Eip": {"Type": "AWS::EC2::EIP"}}}
    assert (
        of(root)["drop", ("Resources", "Vpc", "Type")]["Resources"]["Eip"]
        is (root["Resources"]["Eip"])
    )


def test_places_that_are_alike_are_written_alike():
    """Resources by their type, exports as such, indices as `#`."""
    template = {
        "Resources": {"Vpc1A2B": {"Type": "AWS::EC2::VPC", "Properties": {"Tags": [{}]}}},
        "Outputs": {"ExportsVpc": {"Export": {"Name": "Vpc"}}, "LustreId": {"Value": "fs-1"}},
    }
    for place, written in (
        (("Resources", "Vpc1A2B"), "EC2::VPC"),
        (("Resources", "Vpc1A2B", "Properties"), "EC2::VPC.Properties"),
        (("Resources", "Vpc1A2B", "Properties", "Tags", 0), "EC2::VPC.Tags.#"),
        (("Outputs", "ExportsVpc", "Export"), "Export.Export"),
        (("Outputs", "LustreId", "Value"), "Outputs.LustreId.Value"),
    ):
        assert population.place_in_template(template, place) == written


@pytest.mark.long
def test_the_population_is_the_committed_one():
    """Whoever changes the denominator says so, by `python -m tests.slips.population`."""
    assert population.summary(population.population()) == json.loads(population.FILE.read_text())


def test_few_exact_places_mean_nothing():
    """Each is of some type, and something is there to change."""
    places = population.without_meaning()
    assert len(places) <= population.MOST_WITHOUT_MEANING
    assert not any("*" in place for place in places)
    patterns = {each.pattern for each in population.every_slip()}
    unused = [each for each in places if not any(population.is_below(p, [each]) for p in patterns)]
    assert unused == []


def test_a_part_is_the_same_each_time_and_spread_over_all_rows():
    """About a third of each row; a smaller part is one of the same slips."""
    every = population.population()
    third = [each for each in every if each.is_in_part(3)]
    ninth = [each for each in every if each.is_in_part(9)]
    assert abs(3 * len(third) - len(every)) < 0.05 * len(every)
    assert {each.row for each in third} == {each.row for each in every}
    assert set(ninth) < set(third)


@pytest.mark.parametrize(
    ("by_guards", "by_tool", "both", "who"),
    [
        (True, True, False, Noticed.GUARDS),
        (True, True, True, Noticed.BOTH),
        (True, False, True, Noticed.GUARDS_ALONE),
        (False, True, False, Noticed.TOOLS_ALONE),
        (False, False, True, Noticed.NOBODY),
    ],
)
def test_who_says_more_than_before_has_noticed(by_guards, by_tool, both, who):
    """What was said without the slip does not count."""
    found = slip(JOB, LABEL)
    right = scenes.before(found).changed

    def judge(notices):
        new = {"new"} if notices else set()
        return lambda scene: frozenset({"old", *(new if scene.changed != right else ())})

    assert Judges(judge(by_guards), [judge(by_tool)], both=both).who_notices(found) is who


def test_tools_are_asked_only_of_what_guards_let_pass():
    """They are what takes the time."""

    def tool(_):
        raise AssertionError

    def guards(scene):
        return frozenset({json.dumps(scene.changed)})

    assert Judges(guards, [tool], both=False).who_notices(slip(JOB, LABEL)) is Noticed.GUARDS


def test_the_table_has_a_row_for_each_stack_and_chart():
    """With what guards and tools notice, and how much that is together."""
    found = slip(JOB, LABEL)
    tried = [(found, Noticed.GUARDS), (found, Noticed.TOOLS_ALONE), (found, Noticed.NOBODY)]
    table = Results(tried).table().splitlines()
    assert table[0] == "| stack or chart | slips | guards | tools alone | nobody | noticed |"
    assert table[2] == "| jobs/megatron | 3 | 1 | 1 | 1 | 66.7 % |"
    assert table[3] == "| all | 3 | 1 | 1 | 1 | 66.7 % |"
    assert Results(tried).without_reason() == [str(found)]


def test_each_survivor_has_a_reason():
    """It is one of the slips, and stands in one group alone."""
    groups = yaml.safe_load(SURVIVORS.read_text())
    listed = [slip for group in groups for slip in group["slips"]]
    assert all(len(group["reason"].split()) > 3 for group in groups)
    assert len({*listed}) == len(listed)
    every = population.population()
    assert {*listed} <= {*map(str, every)} | {each.kind for each in every}


def test_guards_notice():
    """A GPU less than the node has: what is rendered together is judged together."""
    assert notices(scenes.said_by_guards, slip(JOB, FEWER_GPUS))


def test_kubernetes_validate_notices():
    """A field of a name that no schema has."""
    assert notices(tools.kubernetes_validate_strictly, slip(PLUGIN, MISSPELT_FIELD))


@pytest.mark.tools
def test_validators_of_templates_notice(tmp_path):
    """A property of a name that no schema has, by the CDK's validator and by cfn-lint."""
    found = slip(STORAGE, MISSPELT_PROPERTY)
    assert notices(tools.cfn_lint, found)
    with tools.cdk_validator(tmp_path) as says:
        assert notices(says, found)


@pytest.mark.control_plane
def test_the_api_server_notices(tmp_path):
    """Two volumes of one name; and by a warning, pods that the namespace would refuse."""
    with tools.api_server(tmp_path) as says:
        assert notices(says, slip(PLUGIN, TWICE))
        assert notices(says, slip(STORAGE_CHECK, PRIVILEGED))
