"""The gate's judgement of versions: known-bad sets are refused with a source, ours pass."""

import json
import re

import combinations
import pytest

from tests.assets.gate_run import gate, gate_process
from tests.assets.image_versions import IMAGE_VERSIONS

# One set for each combination that upstream names, as small as it can be, and a word of what
# happens with it.
BAD = {
    "registration": ({"nccl": "2.20.5", "efa_installer": "1.28.0"}, "RC: -22"),
    "registration, last bad": ({"nccl": "2.19.3-1", "efa_installer": "1.29.0"}, "RC: -22"),
    "built for another libfabric": ({"aws_ofi_nccl": "1.7.1-aws", "libfabric": "1.17.1"}, "FI_OPT"),
    "conda's plugin": ({"aws_ofi_nccl": "1.9.0", "libfabric": "1.18.1amzn5.0"}, "FABRIC_1.7"),
    "old libfabric": ({"aws_ofi_nccl": "v1.21.1", "libfabric": "1.21.0"}, "refuses this libfabric"),
    "Ubuntu's rdma-core": ({"libfabric": "2.4.0amzn5.0", "rdma_core": "50.0"}, "EFA_1.4"),
    "device sorting": ({"aws_ofi_nccl": "1.12.0"}, "loss of speed"),
    "broadcast": ({"aws_ofi_nccl": "1.18.0"}, "broadcasts between nodes hang"),
    "broadcast, by the installer": ({"efa_installer": "1.47.0"}, "broadcasts between nodes hang"),
    "CUDA 13": ({"aws_ofi_nccl": "1.16.3", "cuda": "13.0"}, "made for CUDA 12"),
    "old NCCL": ({"aws_ofi_nccl": "1.20.0", "nccl": "2.16.5"}, "no interface"),
    "NCCL 2.28": ({"aws_ofi_nccl": "1.17.0", "nccl": "2.28.9"}, "NCCL crashes"),
    "debug packages": ({"efa_installer": "1.40.0"}, "unknown package"),
    "driver of CUDA 12": ({"cuda": "13.3", "driver": "570.195.03"}, "older than CUDA 13"),
    "driver of CUDA 11": ({"cuda": "12.8", "driver": "515.65"}, "older than CUDA 12"),
    "resiliency": ({"megatron_core": "0.17.0", "nvidia_resiliency_ext": "0.5.0"}, "lacks"),
    "Python": ({"megatron_core": "0.19.2", "python": "3.11.7"}, "Python 3.12"),
    "older core": ({"megatron_bridge": "0.6.2", "megatron_core": "0.18.2"}, "core 0.19"),
    "newer core": ({"megatron_bridge": "0.5.1", "megatron_core": "0.19.2"}, "core 0.18"),
    "Bridge 0.4": ({"megatron_bridge": "0.4.2", "megatron_core": "0.16.1"}, "core 0.17"),
    "transformers": ({"megatron_bridge": "0.6.2", "transformers": "5.15.0"}, "5.12.1"),
}
GOOD = {
    **IMAGE_VERSIONS,
    "just new enough": {"nccl": "2.30.4", "efa_installer": "1.49.0", "cuda": "13.0"},
    "nothing to compare": {"libfabric": "1.18.2"},
    "upstream's own": {  # awslabs/awsome-distributed-ai, Megatron-Bridge with DeepEP v2, 2026-09
        "efa_installer": "1.50.0",
        "nccl": "2.31.2",
        "cuda": "13.3",
        "megatron_bridge": "0.6.1",
        "megatron_core": "0.19.1",
        "transformers": "5.12.1",
    },
    "AWS's older container": {"nccl": "2.26.2", "cuda": "13.0.2", "aws_ofi_nccl": "1.20.0"},
}


def judged(tmp_path, versions):
    """Let the gate judge a set in a file."""
    path = tmp_path / "versions.json"
    path.write_text(versions if isinstance(versions, str) else json.dumps(versions))
    return gate("--versions", path)


@pytest.mark.parametrize("name", BAD)
def test_a_known_bad_set_is_refused_with_remedy_and_source(tmp_path, name):
    """Exit code 4; the line says what happens, what to take instead, and who says so."""
    versions, happens = BAD[name]
    done = judged(tmp_path, versions)
    assert done.code == 4, done.stderr
    [line] = [each for each in done.findings if happens in each]
    assert re.search(r" - take| - run", line)
    assert "https://" in line


@pytest.mark.parametrize("name", GOOD)
def test_a_good_set_passes(tmp_path, name):
    """What the images hold, and what upstream runs, is refused by no rule."""
    done = judged(tmp_path, GOOD[name])
    assert done.code == 0, done.stderr
    assert not [each for each in done.findings if each.startswith("error")]


@pytest.mark.parametrize("image", sorted(IMAGE_VERSIONS))
def test_our_images_draw_not_even_a_warning(tmp_path, image):
    """The pinned sets are the ones that upstream releases with."""
    assert judged(tmp_path, IMAGE_VERSIONS[image]).findings == []


def test_every_rule_has_a_bad_set_and_a_public_source():
    """A rule that nothing breaks would not be known to work."""
    errors = [rule for rule in combinations.RULES if rule.level == "error"]
    sets = [combinations.completed(versions) for versions, _ in BAD.values()]
    met = {rule for rule in range(len(errors)) if any(map(errors[rule].holds, sets))}
    # Of each pair with Megatron-Bridge one side is enough, and of transformers.
    unmet = [errors[rule].when for rule in range(len(errors)) if rule not in met]
    assert all("megatron_bridge" in when for when in unmet), unmet
    assert all(rule.source.startswith("https://") for rule in combinations.RULES)


def test_all_problems_are_shown_at_once(tmp_path):
    """Several rules, one run; the table marks the components that they name."""
    versions = {"nccl": "2.20.5", "efa_installer": "1.28.0", "cuda": "13.0", "driver": "550.1"}
    done = judged(tmp_path, versions)
    assert len([each for each in done.findings if each.startswith("error")]) == 2
    rows = [line.split() for line in done.stderr.splitlines() if line.startswith(tuple(versions))]
    assert {row[0]: row[2] for row in rows} == dict.fromkeys(versions, "error")


def test_warnings_do_not_refuse(tmp_path):
    """Older than what AWS's examples are tested with is said, and built."""
    done = judged(tmp_path, {"nccl": "2.27.7", "cuda": "12.8"})
    assert done.code == 0
    assert [each.split()[0] for each in done.findings] == ["warning", "warning"]


def test_other_names_of_a_component_are_understood(tmp_path):
    """People call the plugin and the installer by several names."""
    done = judged(tmp_path, {"NCCL-VERSION": "2.20.5", "efa": "1.28.0", "Plugin": "1.9.2-aws"})
    assert done.code == 4
    assert set(done.versions) == {"nccl", "efa_installer", "aws_ofi_nccl"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"ncll": "2.30"}', "no known component - known: python, torch"),
        ('{"nccl": 2.3}', "2.3 is no version"),
        ('{"nccl": "newest"}', "'newest' is no version"),
    ],
)
def test_a_wrong_file_is_the_command_line_s_fault(tmp_path, content, says):
    """Exit code 2, and every slip at once."""
    done = judged(tmp_path, content)
    assert done.code == 2
    assert says in " ".join(done.findings)


def test_a_version_that_was_asked_for_must_be_there(tmp_path):
    """The Dockerfile's argument and what the installer put in are compared."""
    path = tmp_path / "versions.json"
    path.write_text('{"efa_installer": "1.49.0"}')
    assert gate("--versions", path, "--expect", "efa_installer=1.49.0").code == 0
    done = gate("--versions", path, "--expect", "efa_installer=1.50.0", "--expect", "nccl=2.30")
    assert done.code == 4
    assert len(done.findings) == 2


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("2.4.0amzn5.0", "2.4", 0),
        ("2.30.7-1+cuda13.3", "2.30.10", -1),
        ("v1.9.0-aws", "1.18.0", -1),
        ("580.159.03", "580", 1),
    ],
)
def test_versions_are_compared_by_their_leading_numbers(left, right, order):
    """What distributions and vendors add does not count."""
    assert combinations.compare(left, right) == order


def test_a_build_sees_the_exit_code(tmp_path):
    """As a program: the JSON line ends stdout, the table and the remedy are on stderr."""
    path = tmp_path / "versions.json"
    path.write_text('{"nccl": "2.20.5", "efa_installer": "1.28.0"}')
    done = gate_process("--versions", path)
    assert done.code == 4
    assert done.versions == {"nccl": "2.20.5", "efa_installer": "1.28.0"}
    assert done.stderr.startswith("COMPONENT")
    assert "take EFA installer 1.29.1 or later" in done.stderr
