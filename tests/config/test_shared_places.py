"""Which file systems all pods of a job see: Lustre, and EFS where the cluster has it."""

import pytest

from tests.config.test_job_errors import CLUSTER, GOOD, findings

HOMES = CLUSTER.replace("storage:\n", "storage:\n  efs: true\n")
TOKENIZER = GOOD.replace("/shared/tokenizer/llama-3.1-8b", "/efs/tokenizer/llama-3.1-8b")
SAVED = GOOD.replace("/shared/checkpoints/techpulse-cpt", "/efs/checkpoints/techpulse-cpt").replace(
    "keep_last: 3", "keep_last: 20"
)


@pytest.mark.parametrize("text", [TOKENIZER, SAVED])
def test_efs_is_shared_where_it_is(text):
    """Every pod mounts EFS; its room is not that of Lustre."""
    assert findings(text, HOMES) == []


def test_efs_that_is_not_there():
    """Without it the path is one inside a pod."""
    (line,) = findings(TOKENIZER)
    assert line.startswith("error MEKS-0317 j.yaml:33 data.tokenizer: /efs/tokenizer/llama-3.1-8b")
    assert line.endswith("use a path below /shared/, or set storage.efs: true")


def test_its_root_is_nobodys():
    """As of Lustre."""
    (line,) = findings(GOOD.replace("/shared/checkpoints/techpulse-cpt", "/efs"), HOMES)
    assert line.startswith("error MEKS-0317 j.yaml:36 checkpoint.directory: /efs is the root")
    assert line.endswith("use a folder of its own below it: /efs/NAME")
