"""Dockerfiles: what they set for every run, secrets, bases; ours are clean."""

from pathlib import Path

import pytest

from megatron_eks.rules.dockerfiles import findings_in_dockerfile, instructions, is_dockerfile
from tests.rules import cases
from tests.rules.test_check import check

IMAGES = Path(__file__).parents[2] / "assets" / "images"
EFA = "FROM a:1\nRUN ./efa_installer.sh -y\n"


def found(content: str) -> list[str]:
    """Return the findings without their file."""
    return [str(each) for each in findings_in_dockerfile(content, "D")]


def test_ours_are_clean(capsys):
    """The project's own images set nothing that breaks a run."""
    assert check(IMAGES) == (0, [])
    assert "and 2 Dockerfiles: 0 errors" in capsys.readouterr().err


@pytest.mark.parametrize("case", cases.read("tables/dockerfiles.yaml"))
def test_findings(case):
    """Each line gives one finding, at the line where its instruction starts."""
    assert found(f"{EFA}{case['lines']}\n") == [case["expect"]]


@pytest.mark.parametrize(
    "lines",
    [
        "RUN export NCCL_PROTO=simple && ./all_reduce_perf",
        "ENV NCCL_NET_PLUGIN=ofi NCCL_DEBUG=INFO FI_PROVIDER=efa",
        "ENV NCCL_SOCKET_IFNAME=^lo,docker HF_TOKEN_PATH=/run/secrets/token",
        "ARG TAG=26.06-py3\nFROM nvcr.io/nvidia/pytorch:${TAG} AS base\nFROM base\nFROM scratch",
        "RUN <<EOF\nENV NCCL_PROTO=simple\nEOF",
        "ENV MASTER_PORT=29500 CUDA_LAUNCH_BLOCKING=0",
    ],
)
def test_correct_lines(lines):
    """What ends with its step, names a stage, or is what libraries do anyway, is no finding."""
    assert found(f"{EFA}{lines}\n") == []


def test_variables_of_efa_without_efa():
    """An image that has no EFA may tune another network."""
    assert found("FROM a:1\nENV NCCL_PROTO=simple FI_PROVIDER=tcp\n") == []


def test_names():
    """Dockerfiles are told by their names."""
    names = ("Dockerfile", "Dockerfile.gpu", "train.Dockerfile", "Containerfile")
    assert all(is_dockerfile(name) for name in names)
    assert not any(is_dockerfile(name) for name in ("dockerfile_test.py", "notes.md"))


def test_a_file_that_ends_in_the_middle():
    """A continued last line still belongs to its instruction."""
    assert [each.rest for each in instructions("FROM a:1\nRUN b \\")] == ["a:1", "b"]
