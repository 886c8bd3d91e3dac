"""`meks check`: which files it reads, what it prints, how it ends."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.ops.planning.check import run
from tests.guards import slips

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
DEEP = b'{"kind": "Pod", "metadata": ' + b"[" * 150 + b"]" * 150 + b"}"
NOTHING = (
    "error MEKS-0006 {}:1 .: neither template nor manifest - name templates or manifests; "
    "`meks validate` checks cluster and job files"
)


@pytest.fixture(autouse=True)
def alone(monkeypatch, request):
    """Without the tools of others, unless a test is about them."""
    if "with_tools" not in request.fixturenames:
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)


@pytest.fixture
def with_tools():
    """Let the installed tools judge too."""


def check(*paths: Path, output: str = "table") -> tuple[int, list[str]]:
    """Run the command; return its exit code and the lines on stdout."""
    stdout = io.StringIO()
    code = run(paths, output, stdout)
    return code, stdout.getvalue().splitlines()


def codes(lines: list[str]) -> list[str]:
    """Return levels and codes."""
    return [" ".join(line.split()[:2]) for line in lines]


def write_templates(folder: Path, templates: dict[str, Any] | None = None) -> None:
    """Write the default cluster's templates, or changed ones."""
    for name, body in (templates or slips.templates()).items():
        (folder / f"{name}.template.json").write_text(json.dumps(body, indent=1))


def test_rendered_files_pass(tmp_path, capsys):
    """Nothing stands on stdout, and on stderr what was read and who judged it."""
    write_templates(tmp_path)
    (tmp_path / "all.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": slips.manifests()})
    )
    (tmp_path / "manifest.json").write_text("{}")
    assert check(tmp_path) == (0, [])
    count = len(slips.manifests())
    assert capsys.readouterr().err == (
        f"no opinion on {tmp_path}/manifest.json\n"
        f"checked 4 templates and {count} objects by the guards, cfn-lint (not installed), "
        "kubernetes-validate (not installed): 0 errors, 0 warnings\n"
    )


def test_findings_have_the_line_of_their_object(tmp_path, capsys):
    """An error ends with exit code 2."""
    (tmp_path / "pod.yaml").write_text(BAD_POD)
    code, lines = check(tmp_path)
    assert code == 2
    assert lines[0].startswith(f"error MEKS-0609 {tmp_path}/pod.yaml:2 Pod/bad.spec.containers[0]")
    assert capsys.readouterr().err.startswith("checked 0 templates and 1 object by the guards")


def test_templates_of_one_directory_are_judged_together(tmp_path):
    """A rule that is missing in one stack shows although another stack imports the group."""
    templates = json.loads(json.dumps(slips.templates()))
    del templates["Network"]["Resources"]["NodesToNodes"]
    write_templates(tmp_path, templates)
    code, lines = check(tmp_path)
    assert code == 2
    assert "error MEKS-0502" in codes(lines)
    assert check(tmp_path / "Cluster.template.json") == (0, [])


@pytest.mark.usefixtures("with_tools")
def test_the_public_tools_judge_too(tmp_path, capsys):
    """What they refuse is placed where it stands, and the last line names who judged."""
    templates = json.loads(json.dumps(slips.templates()))
    templates["Network"]["Resources"]["Vpc"]["Properties"]["CidrBlok"] = "10.0.0.0/16"
    write_templates(tmp_path, templates)
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"
        "apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec: {ports: wrong}\n"
    )
    (tmp_path / "Dockerfile").write_text("FROM debian:13\nMAINTAINER me\n")
    code, lines = check(tmp_path)
    told = [line for line in lines if "MEKS-0704" in line]
    assert code == 2
    assert any("Resources.Vpc.CidrBlok: cfn-lint E3002: " in line for line in told)
    assert any(f"{tmp_path}/a.yaml:5 Service/b.spec.ports: kubernetes-" in line for line in told)
    assert any(f"{tmp_path}/Dockerfile:2 .: hadolint DL4000: " in line for line in told)
    judged = "by the guards, cfn-lint, kubernetes-validate, hadolint: "
    assert judged in capsys.readouterr().err


def test_a_tool_that_fails_is_told(tmp_path, monkeypatch):
    """Its silence would pass for consent."""
    broken = tmp_path / "cfn-lint"
    broken.write_text("#!/bin/sh\necho 'no such module' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(broken))
    write_templates(tmp_path)
    code, (line,) = check(tmp_path / "Network.template.json")
    assert (code, codes([line])) == (2, ["error MEKS-0704"])
    assert "cfn-lint failed with exit code 1: no such module" in line


def test_json_output(tmp_path):
    """The same findings as a list of mappings; an empty list when there are none."""
    (tmp_path / "pod.yaml").write_text(BAD_POD)
    code, lines = check(tmp_path, output="json")
    first, *_ = json.loads("\n".join(lines))
    assert (code, first["code"], first["line"]) == (2, "MEKS-0609", 2)
    write_templates(tmp_path)
    assert check(tmp_path / "Network.template.json", output="json") == (0, ["[]"])


def test_other_files(tmp_path, capsys):
    """In a folder they are named in one line; only a file that is named itself must be ours."""
    (tmp_path / "cluster.yaml").write_text("name: techpulse\nname: twice\n")
    for name in "abcde":
        (tmp_path / f"{name}.json").write_text("[1, 2]")
    (tmp_path / "notes.txt").write_text("kind: Pod")
    assert check(tmp_path) == (0, [])
    assert "a.json" in (err := capsys.readouterr().err)
    assert "c.json, " in err
    assert err.partition("\n")[0].endswith(", and 2 more")
    assert check(tmp_path / "a.json") == (2, [NOTHING.format(tmp_path / "a.json")])
    code, lines = check(tmp_path / "cluster.yaml")
    assert (code, codes(lines)) == (2, ["error MEKS-0003"])


def test_a_directory_with_nothing_to_check_fails(tmp_path):
    """A check of nothing is no success."""
    expected = f"error MEKS-0006 {tmp_path}:1 .: no template and no manifest in it - name others"
    assert check(tmp_path) == (2, [expected])


def test_hidden_and_installed_folders_are_skipped(tmp_path):
    """Below a directory, dependencies, hidden folders and the CDK's assets are not ours."""
    for name in ("node_modules", ".venv", "asset.0123", "charts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pod.yaml").write_text(BAD_POD)
    _, lines = check(tmp_path)
    assert {line.split()[2].split(":")[0] for line in lines} == {f"{tmp_path}/charts/pod.yaml"}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.yaml", b"\xff\xfe\x00", "error MEKS-0001 {}:1 .: not a text in UTF-8"),
        ("a.yaml", b"a: [", "error MEKS-0002 {}:"),
        ("a.json", b'{"a": ', "error MEKS-0002 {}:"),
        ("a.yaml", b"a: \x00", "error MEKS-0002 {}:"),
        ("a.json", b'{"Resources": ' + b"[" * 5000, "error MEKS-000"),
        (
            "a.json",
            b'{"kind": "Pod", "metadata": ' + b"[" * 150 + b"]" * 150 + b"}",
            "error MEKS-0005 {}:1",
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


def test_missing_paths(tmp_path):
    """A path that is not there is a finding."""
    missing = tmp_path / "missing.yaml"
    code, (line,) = check(missing)
    assert (code, codes([line])) == (2, ["error MEKS-0001"])
    os.mkfifo(missing)
    assert check(missing)[1] == [f"error MEKS-0001 {missing}:1 .: a pipe or a device - name a file"]


def test_an_unreadable_directory_is_a_finding(tmp_path, monkeypatch):
    """A folder that may not be listed does not pass as empty."""

    def walk(path, onerror):
        onerror(PermissionError(13, "Permission denied", str(path)))
        return iter(())

    monkeypatch.setattr(os, "walk", walk)
    code, (line,) = check(tmp_path)
    assert code == 2
    assert line.startswith(f"error MEKS-0001 {tmp_path}:1 .: permission denied")


def test_a_file_is_read_once(tmp_path):
    """A file named twice, or inside a directory that is named too, is judged once."""
    path = tmp_path / "pod.yaml"
    path.write_text(BAD_POD)
    assert check(path, tmp_path, path) == check(path)


def test_names_cannot_break_the_output(tmp_path):
    """Whatever an edited file calls things, a finding is one printable line."""
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad\n\x1b[31m\ud800"}}
    pod["spec"] = {"containers": [{"name": "a", "image": "nginx"}]}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    _, lines = check(tmp_path)
    assert all(line.isprintable() for line in lines)
    assert "Pod/bad\\n\\x1b[31m\\ud800.spec" in lines[0]


WHY = "the tag is pinned by the registry"
ALLOWED = "allowed MEKS-0609 {}:2 Pod/bad.spec.containers[0].image: "


def test_a_finding_that_is_allowed(tmp_path, capsys):
    """It is listed with its reason, and counts neither as error nor as warning."""
    note = f'bad, annotations: {{megatron-eks/allow: "MEKS-0609 {WHY}"}}}}'
    path = tmp_path / "pod.yaml"
    path.write_text(BAD_POD.replace("bad}", note))
    _, lines = check(path)
    (found,) = [line for line in lines if "MEKS-0609" in line]
    assert found.startswith(ALLOWED.format(path))
    assert found.endswith(f" - allowed: {WHY}")
    assert capsys.readouterr().err.endswith(", 1 allowed\n")


def test_a_resource_allows_by_its_metadata(tmp_path):
    """An error of a template is allowed for that resource alone."""
    templates = json.loads(json.dumps(slips.templates()))
    for name in ("SystemLaunchTemplate", "Poolp4dLaunchTemplateBDFAA672"):
        resource = templates["Cluster"]["Resources"][name]
        resource["Properties"]["LaunchTemplateData"]["MetadataOptions"]["HttpTokens"] = "optional"
    resource["Metadata"] = {"meks": {"allow": {"MEKS-0504": "an old agent needs it"}}}
    write_templates(tmp_path, templates)
    code, lines = check(tmp_path)
    assert (code, codes(lines)) == (2, ["error MEKS-0504", "allowed MEKS-0504"])


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("MEKS-0609", "error MEKS-0710 {}: MEKS-0609 is allowed without a reason - "),
        ("everything", "error MEKS-0710 {}: no code is allowed - "),
        (
            "MEKS-0614 it is a test",
            "warning MEKS-0710 {}: MEKS-0614 is allowed, and was not found here - remove it",
        ),
        ("MEKS-0668 an old one", "warning MEKS-0710 {}: MEKS-0668 was removed, because "),
    ],
)
def test_allowances_that_are_wrong(tmp_path, note, expected):
    """Without a code, a reason, or a finding, the allowance itself is one; nothing is hidden."""
    path = tmp_path / "pod.yaml"
    path.write_text(BAD_POD.replace("bad}", f"bad, annotations: {{megatron-eks/allow: {note}}}}}"))
    place = f"{path}:2 Pod/bad.metadata.annotations.megatron-eks/allow"
    _, lines = check(path)
    assert any(line.startswith(expected.format(place)) for line in lines)
    assert any(line.startswith("error MEKS-0609") for line in lines)
