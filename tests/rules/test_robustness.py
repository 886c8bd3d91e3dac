"""Rules judge whatever a file holds: they never raise, and claim only what they can prove."""

import time
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.dockerfiles import findings_in_dockerfile
from megatron_eks.rules.manifests import check_manifests
from megatron_eks.rules.templates import check_template, check_templates
from megatron_eks.rules.variables import in_script
from tests.rules import cases

Place = tuple[str | int, ...]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2000)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["-1", "tcp", "efa", "p4d.24xlarge", "Memory", "8", "$(A)", "hf_", "--nnodes"]
    )
)
NAMES = st.text(max_size=6) | st.sampled_from(
    [
        *("Ref", "Fn::If", "Fn::GetAtt", "Fn::ImportValue", "Fn::Sub", "Condition", "Properties"),
        *("name", "value", "spec", "template", "containers", "env", "resources", "limits", "items"),
    ]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
UNKNOWN: list[dict[str, Any]] = [
    {"Ref": "Parameter"},
    {"Fn::If": ["Condition", {"Ref": "Parameter"}, {"Ref": "AWS::NoValue"}]},
]

WORDS = (
    *("FROM", "ARG", "RUN", "COPY", "ADD", "ENV", "USER", "SHELL", "WORKDIR", "CMD", "ENTRYPOINT"),
    *(
        "nvidia/cuda:12.8.0-devel-ubuntu24.04",
        "pytorch/pytorch",
        "AS",
        "a",
        "--from=a",
        "A=$A",
        '"',
    ),
    *(
        "apt-get",
        "install",
        "-y",
        "git",
        "pip",
        "torch==2.8.0",
        "flash-attn",
        "apex",
        "sudo",
        "[",
        "]",
    ),
    *(
        "cd",
        "/x",
        "..",
        "make",
        "-C",
        "&&",
        "||",
        ";",
        "(",
        "source",
        "./efa_installer.sh",
        "<<",
        "EOF",
    ),
    *(
        "NCCL_DEBUG=INFO",
        "LD_LIBRARY_PATH=",
        "--build-arg",
        "${A}",
        "${A",
        "\\",
        "'",
        "uv",
        "-r",
        "venv",
    ),
)

TEMPLATES = cases.good_templates()
JOB = cases.good_job()
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}


def places(node: Any, path: Place = ()) -> Iterator[Place]:
    """Return the place of everything in a value but the value itself."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from places(child, (*path, key))


def put(root: Any, place: Place, value: Any) -> Any:
    """Return a copy with another value in one place, if an earlier change left the place there."""
    copy = cases.copy(root)
    node = copy
    for key in place[:-1]:
        if not has(node, key):
            return copy
        node = node[key]
    if has(node, place[-1]):
        node[place[-1]] = value
    return copy


def has(node: Any, key: str | int) -> bool:
    """Tell whether a value has a child of that key or index."""
    if isinstance(key, int):
        return isinstance(node, list) and key < len(node)
    return isinstance(node, dict) and key in node


def are_lines(findings: Iterator[Finding]) -> bool:
    """Tell whether all findings can be written, found text and remedy each on one line."""
    return all("\n" not in finding.found + finding.remedy for finding in findings if str(finding))


@settings(deadline=None)
@given(JSON)
def test_anything_as_a_template(value):
    """Any JSON may stand where a template, its resources or their properties are expected."""
    kinds = {
        resource["Type"] for each in TEMPLATES.values() for resource in each["Resources"].values()
    }
    assert are_lines(check_templates({"file": value}))
    assert are_lines(check_template({"Resources": value, "Outputs": value}))
    resources: Any = {kind: {"Type": kind, "Properties": value} for kind in kinds}
    assert are_lines(check_template({"Resources": resources}))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(places(TEMPLATES))), JSON), min_size=1, max_size=3))
def test_anything_inside_templates(changes):
    """Any JSON may stand anywhere in templates that are otherwise good."""
    templates = TEMPLATES
    for place, value in changes:
        templates = put(templates, place, value)
    assert are_lines(check_templates(templates))


@settings(deadline=None)
@given(JSON)
def test_anything_as_a_manifest(value):
    """Any JSON may stand where an object or its spec is expected."""
    assert are_lines(check_manifests([value, POD | {"spec": value}, JOB | {"spec": value}]))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(places(JOB))), JSON), min_size=1, max_size=3))
def test_anything_inside_a_job(changes):
    """Any JSON may stand anywhere in a job that is otherwise good."""
    job = JOB
    for place, value in changes:
        job = put(job, place, value)
    assert are_lines(check_manifests([job]))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=8))
def test_anything_as_a_dockerfile(lines):
    """Steps without what they need, quotes and lines that never end."""
    found = [*findings_in_dockerfile("\n".join(lines), "Dockerfile")]
    assert all(isinstance(each, Finding) and each.line for each in found)


def test_what_a_parameter_holds_is_no_mistake():
    """Whatever one property is replaced by a parameter or a condition, no rule claims an error."""
    errors = []
    for place in places(TEMPLATES):
        in_resource = len(place) > 4 and place[1] == "Resources"
        for unknown in UNKNOWN if in_resource else ():
            found = check_templates(put(TEMPLATES, place, unknown))
            errors += [(place, str(each)) for each in found if each.level is Level.ERROR]
    assert errors == []


def test_long_lists_of_variables_are_read_in_time():
    """Each line of a script may begin such a list; the time grows with its length alone."""
    script = "A=B \\\n" * 4000 + "torchrun /train.py\n"
    begun = time.process_time()
    assert len(list(in_script(script))) <= len(script)
    assert time.process_time() - begun < 10
