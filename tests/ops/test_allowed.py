"""What is allowed on purpose stays in sight: in the plan, and in what validate prints."""

import json

import pytest

from tests.ops.test_cli import CLUSTER, meks

REASON = "planned without an account, to compare two designs before anybody pays for one of them"


@pytest.fixture
def project(tmp_path):
    """Write a cluster file that allows its two warnings, one above and one beside it."""
    above = f"  # meks: allow MEKS-0212 {REASON}\n  admin_role_arns:"
    text = CLUSTER.replace("  admin_role_arns:", above)
    text = text.replace("203.0.113.0/24]", "203.0.113.0/24] # meks: allow MEKS-0212 as well")
    (tmp_path / "cluster.yaml").write_text(text)
    return tmp_path


def test_a_comment_allows_a_warning_of_a_configuration(project):
    """It is listed with its reason, and counts as no warning."""
    done = meks("validate", cwd=project)
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["allowed", "MEKS-0212", "cluster.yaml:11"],
        ["allowed", "MEKS-0212", "cluster.yaml:12"],
    ]
    assert lines[0].endswith(f" - allowed: {REASON}")
    assert done.stderr.endswith(": 0 errors, 0 warnings, 2 allowed\n")


def test_no_comment_allows_an_error_of_a_configuration(project):
    """What is an error here is refused later as well, whatever a comment says."""
    path = project / "cluster.yaml"
    path.write_text(
        CLUSTER.replace("capacity_gib: 1200 #", "capacity_gib: 7 # meks: allow MEKS-0210")
    )
    done = meks("validate", cwd=project)
    assert done.returncode == 2
    assert "error MEKS-0210 cluster.yaml:19 storage.lustre.capacity_gib: " in done.stdout
    assert "error MEKS-0710 cluster.yaml:19 .: MEKS-0210 is an error here" in done.stdout


def test_the_plan_as_json_lists_what_is_allowed(project):
    """The same findings, with level, code, file, line, path and reason."""
    allowed = json.loads(meks("plan", "-o", "json", cwd=project).stdout)["allowed"]
    assert [(row["code"], row["file"], row["remedy"]) for row in allowed] == [
        ("MEKS-0212", "cluster.yaml", f"allowed: {REASON}"),
        ("MEKS-0212", "cluster.yaml", "allowed: as well"),
    ]
