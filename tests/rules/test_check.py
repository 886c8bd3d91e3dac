"""`meks check`: which files it reads, what it prints, how it ends."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.config.load import Document
from megatron_eks.ops.check import run
from megatron_eks.rules.manifests import findings_in_manifests
from megatron_eks.rules.templates import findings_for_templates, findings_in_templates
from tests.rules import cases

GOOD = cases.HERE / "good"
BAD_POD = """\
# A comment before the object.
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  containers:
    - image: nginx
      name: nginx
"""
LATEST = (
    "Pod/bad.spec.containers[0].image: 'nginx' is whatever was pushed last - "
    "name a digest (@sha256:...), or a tag that nobody moves"
)
NOTHING = (
    "error MEKS-0006 {}:1 .: neither template nor manifest - name templates or manifests; "
    "`meks validate` checks cluster and job files"
)


def check(*paths: Path, output: str = "table") -> tuple[int, list[str]]:
    """Run the command; return its exit code and the lines on stdout."""
    stdout = io.StringIO()
    code = run(paths, output, stdout)
    return code, stdout.getvalue().splitlines()


def test_good_files_pass(capsys):
    """Nothing stands on stdout, and what was read on stderr."""
    assert check(GOOD) == (0, [])
    assert capsys.readouterr().err == "checked 3 templates and 1 object: 0 errors, 0 warnings\n"


def test_warnings_pass(tmp_path):
    """A warning is printed with file and line, and the exit code stays 0."""
    (tmp_path / "pod.yaml").write_text(BAD_POD)
    assert check(tmp_path) == (0, [f"warning MEKS-0609 {tmp_path}/pod.yaml:7 {LATEST}"])


def test_errors_fail(tmp_path, capsys):
    """Errors come first, each at the line of what is wrong; the exit code is 2."""
    job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\n"
    job += (
        "spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: nginx}]}}}\n"
    )
    (tmp_path / "a.yaml").write_text(f"{BAD_POD}---\n---\n{job}")
    assert check(tmp_path / "a.yaml") == (
        2,
        [
            f"error MEKS-0609 {tmp_path}/a.yaml:14 "
            + LATEST.replace("Pod/bad.spec", "Job/bad.spec.template.spec"),
            f"warning MEKS-0609 {tmp_path}/a.yaml:7 {LATEST}",
        ],
    )
    assert capsys.readouterr().err == "checked 0 templates and 2 objects: 1 error, 1 warning\n"


def test_templates_of_one_directory_are_judged_together(tmp_path):
    """A rule that is missing in one stack shows although another stack imports the group."""
    templates = cases.templates_of({"drop": ["ToNodes"]})
    for name, template in templates.items():
        (tmp_path / f"{name}.template.json").write_text(json.dumps(template, indent=1))
    code, lines = check(tmp_path)
    assert code == 2
    line = (tmp_path / "Network.template.json").read_text().splitlines().index('  "Nodes": {') + 1
    assert lines == [
        (
            f"error MEKS-0502 {tmp_path}/Network.template.json:{line} Resources.Nodes: no egress "
            'rule with protocol "-1" and the group itself, and GpuTemplate carries it for EFA - '
            "add rules from and to itself; in CDK as CfnSecurityGroupIngress and -Egress"
        )
    ]
    assert check(tmp_path / "Cluster.template.json") == (0, [])


def test_a_template_in_json_has_lines_of_its_properties(tmp_path):
    """The line is that of the property, as in YAML, and not that of the resource."""
    templates = cases.good_templates()
    templates["Storage"]["Resources"]["Lustre"]["Properties"]["FileSystemTypeVersion"] = "2.99"
    text = json.dumps(templates["Storage"], indent=1)
    (tmp_path / "Storage.json").write_text(text)
    code, lines = check(tmp_path)
    line = next(at for at, each in enumerate(text.splitlines(), 1) if '"2.99"' in each)
    assert code == 2
    assert [each.split()[2] for each in lines if "2.99" in each] == [
        f"{tmp_path}/Storage.json:{line}"
    ]


def test_json_output(tmp_path):
    """The same findings as a list of mappings; an empty list when there are none."""
    (tmp_path / "pod.yaml").write_text(BAD_POD)
    code, lines = check(tmp_path, output="json")
    (finding,) = json.loads("\n".join(lines))
    assert (code, finding["code"], finding["line"]) == (0, "MEKS-0609", 7)
    assert check(GOOD, output="json") == (0, ["[]"])


def test_other_files_in_directories_are_ignored(tmp_path):
    """Only a file that is named must hold something to check."""
    (tmp_path / "cluster.yaml").write_text("name: techpulse\nname: twice\n")
    (tmp_path / "values.json").write_text("[1, 2]")
    (tmp_path / "notes.txt").write_text("kind: Pod")
    (tmp_path / "good.yml").write_text((GOOD / "job.yaml").read_text())
    assert check(tmp_path) == (0, [])
    assert check(tmp_path / "values.json") == (2, [NOTHING.format(tmp_path / "values.json")])
    code, lines = check(tmp_path / "cluster.yaml")
    assert code == 2
    assert lines[0].startswith(
        f"error MEKS-0003 {tmp_path}/cluster.yaml:2 name: 'name' is given twice"
    )


def test_a_directory_with_nothing_to_check_fails(tmp_path):
    """A check of nothing is no success."""
    expected = f"error MEKS-0006 {tmp_path}:1 .: no template and no manifest in it - name others"
    assert check(tmp_path) == (2, [expected])


def test_hidden_and_installed_folders_are_skipped(tmp_path):
    """Below a directory, dependencies and hidden folders belong to somebody else."""
    (tmp_path / ".eslintrc.json").write_text("// of another program\n{}")
    for name in ("node_modules", ".venv", "charts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pod.yaml").write_text(BAD_POD)
    _, lines = check(tmp_path)
    assert lines == [f"warning MEKS-0609 {tmp_path}/charts/pod.yaml:7 {LATEST}"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.yaml",
            b"\xff\xfe\x00",
            "error MEKS-0001 {}:1 .: not a text in UTF-8 - write it as UTF-8",
        ),
        ("a.yaml", b"a: [", "error MEKS-0002 {}:"),
        ("a.json", b'{"a": ', "error MEKS-0002 {}:"),
        ("a.yaml", b"a: \x00", "error MEKS-0002 {}:"),
        ("a.json", b'{"Resources": ' + b"[" * 5000, "error MEKS-000"),
        (
            "a.json",
            b'{"kind": "Pod", "metadata": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}",
            "error MEKS-0005 {}:1 .: nested too deeply to read - use at most 100 levels",
        ),
    ],
)
def test_broken_files_are_findings(tmp_path, name, content, expected):
    """What cannot be read is a finding, named or found in a directory, and never a traceback."""
    path = tmp_path / name
    path.write_bytes(content)
    for place in (path, tmp_path):
        code, (line,) = check(place)
        assert code == 2
        assert line.startswith(expected.format(path))


def test_missing_and_unreadable_paths(tmp_path):
    """A path that is not there is a finding."""
    missing = tmp_path / "missing.yaml"
    expected = (
        f"error MEKS-0001 {missing}:1 .: no such file or directory - name a file that can be read"
    )
    assert check(missing) == (2, [expected])


def test_a_file_is_read_once(tmp_path):
    """A file named twice, or inside a directory that is named too, is judged once."""
    path = tmp_path / "pod.yaml"
    path.write_text(BAD_POD)
    _, lines = check(path, tmp_path, path)
    assert lines == [f"warning MEKS-0609 {path}:7 {LATEST}"]


def test_names_cannot_break_the_output(tmp_path):
    """Whatever a foreign file calls things, a finding is one printable line."""
    name = "bad\n\x1b[31m\ud800"
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    pod["spec"] = {"containers": [{"name": "a", "image": "nginx"}]}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    _, (line,) = check(tmp_path)
    assert line.isprintable()
    assert "Pod/bad\\n\\x1b[31m\\ud800.spec" in line
    assert check(tmp_path, output="json")[0] == 0


def test_text_of_other_forms(tmp_path):
    """A byte order mark, short forms of intrinsics and the suffix `.template` are understood."""
    for stack in ("Network", "Cluster", "Storage"):
        content = (GOOD / f"{stack}.yaml").read_text()
        (tmp_path / f"{stack}.template").write_text(f"\ufeff{content}", encoding="utf-8")
    (tmp_path / "json.template").write_text('{"Resources": {"A": {"Type": "AWS::EKS::Cluster"}}}')
    code, (line, *warnings) = check(tmp_path)
    assert code == 2
    assert line.startswith(f"error MEKS-0510 {tmp_path}/json.template:1 Resources.A.")
    assert {warning.split()[1] for warning in warnings} == {"MEKS-0548"}


def test_texts_for_template_engines_are_ignored(tmp_path):
    """Helm's templates are no manifests yet; named, such a file is one that cannot be read."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: chart\n")
    (chart / "templates" / "pod.yaml").write_text(BAD_POD)
    (tmp_path / "pod.yaml").write_text(BAD_POD.replace("image: nginx", "image: nginx:1"))
    (tmp_path / "env.template").write_text("A=1\n: [")
    other = tmp_path / "other.yaml"
    other.write_text("{{ if .Values.on }}\nkind: Pod\n{{ end }}\n")
    (tmp_path / "envsubst.yaml").write_text("kind: Pod\nmetadata: {name: ${NAME}}\n")
    (tmp_path / "terraform.yaml").write_text("kind: Pod\n%{ if on }\nmetadata: {}\n%{ endif }\n")
    assert check(tmp_path) == (0, [])
    twice = tmp_path / "twice.yaml"
    twice.write_text("kind: Pod\nmetadata: {name: '${NAME}'}\nkind: Pod\napiVersion: v1\n")
    assert [line.split()[1] for line in check(tmp_path)[1]] == ["MEKS-0003"]
    code, (line,) = check(other)
    assert (code, line.split(":")[0]) == (2, f"error MEKS-0002 {other}")


def test_data_and_settings_in_json_are_ignored(tmp_path):
    """Lines of JSON are data, and comments are for an editor; a template with either is broken."""
    (tmp_path / "good.yml").write_text((GOOD / "job.yaml").read_text())
    (tmp_path / "lines.json").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "settings.json").write_text('{\n  // of an editor\n  "a": 1\n}\n')
    assert check(tmp_path) == (0, [])
    assert check(tmp_path / "lines.json")[0] == 2
    (tmp_path / "settings.json").write_text('{\n  // ours\n  "Resources": {}\n}\n')
    assert [line.split()[1] for line in check(tmp_path)[1]] == ["MEKS-0002"]


def test_an_unreadable_directory_is_a_finding(tmp_path, monkeypatch):
    """A folder that may not be listed does not pass as empty."""

    def walk(path, onerror):
        onerror(PermissionError(13, "Permission denied", str(path)))
        return iter(())

    monkeypatch.setattr(os, "walk", walk)
    code, (line,) = check(tmp_path)
    assert code == 2
    assert line.startswith(f"error MEKS-0001 {tmp_path}:1 .: permission denied")


def test_texts_in_memory_are_judged_as_files():
    """Entry points hand over what they wrote, by file name."""
    texts = {f"{name}.json": json.dumps(each) for name, each in cases.good_templates().items()}
    assert findings_for_templates(texts) == []
    texts["Network.json"] = texts["Network.json"].replace('"-1", "CidrIp"', '"all", "CidrIp"')
    (finding,) = findings_for_templates(texts)
    assert (finding.file, finding.line, finding.code) == ("Network.json", 1, "MEKS-0518")
    (finding,) = findings_for_templates({"broken.json": '{"a": '})
    assert (finding.file, finding.code) == ("broken.json", "MEKS-0002")


def test_a_file_is_read_only_to_find_a_line():
    """Objects still in memory are placed by their file, which is not touched without a finding."""

    def read(file):
        reads.append(file)
        return {"pod.yaml": BAD_POD, "Cluster": json.dumps(bad, indent=1)}[file]

    reads: list[str] = []
    bad = cases.templates_of({"set": {"Gpu.DiskSize": 500}})["Cluster"]
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    good = [Document("job.yaml", cases.good_job()), Document("other.yaml", pod)]
    assert findings_in_manifests(good, read) == []
    assert (
        findings_in_templates([Document("Network", cases.good_templates()["Network"])], read) == []
    )
    assert reads == []
    pod["spec"] = {"containers": [{"name": "a", "image": "nginx"}]}
    (finding,) = findings_in_manifests([Document("pod.yaml", pod)], read)
    assert (reads, finding.line) == (["pod.yaml"], 2)
    (finding,) = findings_in_templates([Document("Cluster", bad)], read)
    assert (reads[1:], finding.line) == (
        ["Cluster"],
        read("Cluster").splitlines().index('  "Gpu": {') + 1,
    )


def test_what_concerns_no_resource_has_a_line_too(tmp_path):
    """A section with a slip in its name is found where it stands."""
    path = tmp_path / "t.yaml"
    path.write_text("Resources:\n  A: {Type: 'AWS::EC2::InternetGateway'}\nOutput:\n  B: {}\n")
    code, (line,) = check(path)
    assert code == 2
    assert line.startswith(f"error MEKS-0560 {path}:3 Output: ")


TEMPLATE = """\
Resources:
  Block:
    Type: AWS::EC2::PlacementGroup
    Properties:
      Strategy: cluster
      PartitionCount: 2
  Out:
    Type: AWS::EC2::NatGateway
    Properties:
      SubnetId: subnet-0123456789abcdef0
"""


def test_the_line_is_that_of_the_property(tmp_path):
    """Of one that is missing it is the resource's."""
    (tmp_path / "network.yaml").write_text(TEMPLATE)
    _, lines = check(tmp_path)
    assert [line.partition(f"{tmp_path}/")[2].split(":")[:2] for line in lines] == [
        ["network.yaml", "6 Resources.Block.PartitionCount"],
        ["network.yaml", "7 Resources.Out.AllocationId"],
    ]


def test_a_number_in_octal_is_told_as_it_is_written(tmp_path):
    """YAML 1.1 reads 0770 as 504, and what is meant is the text."""
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n}\n"
        'data:\n  mode: 0770\n  size: 1_0\n  other: "0770"\n'
    )
    code, lines = check(tmp_path)
    assert code == 2
    assert [line.partition("data.")[2] for line in lines] == [
        'mode: 0770 is no text: the API server refuses the object - put it in quotes: "0770"'
    ]
