"""Whose job a job is: what is said where a file names no team, another's, or too much."""

import pytest

from tests.config.test_job_errors import CLUSTER, GOOD, findings

ROLE = "arn:aws:iam::123456789012:role/"
TEAMS = f"""
teams:
  - {{name: nlp, role_arns: ["{ROLE}Nlp"], gpus: 16}}
  - {{name: vision, role_arns: ["{ROLE}Vision"], gpus: 0}}
"""
SHARED = CLUSTER + TEAMS
OF_NLP = GOOD.replace("pool: p4d", "team: nlp\npool: p4d")


def test_a_job_of_a_team_is_without_fault():
    """With its share it can run."""
    assert findings(OF_NLP, SHARED) == []
    copied = OF_NLP.replace("  interval: 100", "  interval: 100\n  s3_uri: s3://runs/teams/nlp/run")
    assert findings(copied, SHARED) == []


@pytest.mark.parametrize(
    ("text", "cluster", "said"),
    [
        (
            GOOD,
            SHARED,
            "j.yaml:3 team: the job file names no team - add `team: nlp` or `team: vision`",
        ),
        (
            OF_NLP.replace("team: nlp", "team: nlpp"),
            SHARED,
            "j.yaml:6 team: no team 'nlpp' - did you mean 'nlp'? known: nlp, vision",
        ),
        (OF_NLP, CLUSTER, "j.yaml:6 team: the cluster file has no teams - leave it out"),
        (
            OF_NLP.replace("team: nlp", "team: vision"),
            SHARED,
            (
                "j.yaml:8 nodes: 16 GPUs, and team vision can have 0 - "
                "use fewer nodes, or gpus: 16 for the team"
            ),
        ),
        (
            OF_NLP.replace(
                "  interval: 100", "  interval: 100\n  s3_uri: s3://runs/teams/vision/run"
            ),
            SHARED,
            "s3://runs/teams/vision/run is not of team nlp - use a key below teams/nlp/",
        ),
        (
            OF_NLP.replace(
                "  interval: 100", "  interval: 100\n  s3_uri: s3://runs/teams/nlp-2/run"
            ),
            SHARED,
            "s3://runs/teams/nlp-2/run is not of team nlp - use a key below teams/nlp/",
        ),
    ],
)
def test_messages(text, cluster, said):
    """Each before anything is submitted."""
    (found,) = findings(text, cluster)
    assert found.startswith("error MEKS-0637 ")
    assert said in found
