"""Dockerfiles: what they set for every run, secrets, bases; ours are clean."""

from pathlib import Path

import pytest

from megatron_eks.rules.dockerfiles import findings_in_dockerfile, instructions, is_dockerfile
from tests.rules import cases
from tests.rules.test_check import check

IMAGES = Path(__file__).parents[2] / "assets" / "images"
PLUGIN = "RUN cd aws-ofi-nccl && ./configure --with-libfabric=/opt/amazon/efa --prefix="
EFA = "FROM a:1\nRUN ./efa_installer.sh -y --skip-kmod\n"


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
        "RUN make -C nccl-tests MPI=1 MPI_HOME=/usr/local/mpi",
        "ENV A=b C= D=\\ e\nENV KEY value = other",
        'CMD ["bash"]\nFROM a:2\nENTRYPOINT ["tini"]\nCMD ["a"]',
        "FROM --platform=linux/amd64 ubuntu:24.04 AS build",
        "ARG TOOL_VERSION=1\nRUN for TOOL_VERSIONS in 1; do echo '$TOOL_VERSIO'; done",
        "ARG OFI=v1.16.3\nRUN curl https://github.com/aws/aws-ofi-nccl/releases/download/${OFI}/a",
        "RUN useradd -u 1000 trainer\nUSER 1000\nUSER trainer:trainer\nUSER nobody",
        "RUN echo $((1<<20)) && cat <<< word\nRUN true",
        "RUN a\n{{ steps }}\nINCLUDE other\n{% if b %}",
        "COPY <<EOF /entrypoint.sh\nKUBECONFIG=/tmp/kubeconfig\ncat /tmp/.env\nEOF",
        "ENV NCCL_SOCKET_IFNAME=^lo,docker NCCL_MNNVL_ENABLE=1 HF_TOKEN_PATH=/run/secrets/token",
        "ARG TAG=26.06-py3\nFROM nvcr.io/nvidia/pytorch:${TAG} AS base\nFROM base\nFROM scratch",
        "RUN <<EOF\nENV NCCL_PROTO=simple\nEOF",
        "ENV MASTER_PORT=29500 CUDA_LAUNCH_BLOCKING=0",
        "ENV NCCL_VERSION=2.27.7-1 NCCL_HOME=/usr NCCL_DEBUG_DIR=/tmp NCCL_IB_DISABLE=0",
        'ENTRYPOINT ["torchrun"]',
        "ENTRYPOINT exec torchrun /train.py",
        "COPY train.py data.py /workspace/\nCOPY a.py b.py ./\nCOPY a.py b.py $TARGET",
        "FROM --platform=$BUILDPLATFORM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS b",
        f"{PLUGIN}/opt/ofi\nENV LD_LIBRARY_PATH=/opt/ofi/lib:/opt/amazon/ofi-nccl/lib",
        f"{PLUGIN}/o/ofi-nccl/a && ln -s a /o/ofi-nccl/lib\nENV LD_LIBRARY_PATH=/o/ofi-nccl/lib",
        "ENV LD_LIBRARY_PATH=/opt/amazon/efa/lib",
        "ENV PATH=/opt/amazon/efa/bin:$PATH LD_LIBRARY_PATH=/a:${LD_LIBRARY_PATH:-}",
        "RUN export NCCL_TESTS_VERSION=2.18.3 && curl -O https://example.com/n.tar.gz",
        "ARG EFA_INSTALLER_VERSION=1.36.0",
        "RUN ./efa_installer.sh -y -g -k && ./efa_installer.sh $OPTIONS",
        "RUN cd nccl-tests && make MPI=1 MPI_HOME=/opt/amazon/openmpi",
        "RUN cd /opt/gdr\nWORKDIR /opt/gdr\nRUN make",
        "{{ include('base') }}\n# syntax\nfrom a:2\nLABEL a=b",
        "USER 1000\nRUN sudo apt-get install -y git\nUSER root\nRUN apt-get install -y git",
        "FROM ubuntu:22.04\nRUN apt-get update\nRUN apt-get install -y git",
        'FROM ubuntu:22.04\nSHELL ["/bin/bash", "-c"]\nRUN source /a && pip install b',
        "FROM ubuntu:22.04\nRUN bash -c 'source /a && pip install b'",
        "FROM amazonlinux:2023\nRUN source /a && make -C /b",
        "FROM ubuntu:24.04\nRUN python3 -m venv /v\nENV PATH=/v/bin:$PATH\nRUN pip install b",
        "FROM ubuntu:24.04\nRUN pip install --break-system-packages b",
        "RUN . /v/bin/activate && pip install b\nRUN . /v/bin/activate && pip install c",
        "RUN . /v/bin/activate\nENV PATH=/v/bin:$PATH\nRUN pip install c",
        "COPY --from=one ../a /a",
        "FROM a:2 AS build\nFROM a:3\nCOPY --from=build /a /a\nCOPY --from=busybox /b /b",
        "FROM ubuntu:22.04\nRUN apt-get update && apt-get -qqy install git wget && git clone a",
        "FROM ubuntu:22.04\nRUN apt update && apt install numactl && apt install curl -y",
        "FROM ubuntu:22.04\nRUN apt update && yes | apt install curl && curl -O https://a",
        "RUN cd aws-ofi-nccl && ./configure --with-libfabric=/opt/amazon/efa && make install",
        "RUN git clone https://example.com/a /a && cd /a\nRUN make -C /a && cd /a && make install",
        "RUN git clone https://example.com/a /a && cd /a\nCOPY . .\nRUN make",
        "RUN mkdir build && cd build\nRUN cmake -S . -B build",
        "RUN curl -O https://example.com/a.sh && cd /\nRUN (cd /a && make)",
        "RUN cd /a\nRUN mkdir -p /b && git clone https://example.com/b /b && cd /b && make",
        "RUN pip install torch && pip install --no-build-isolation flash-attn",
        "ENV PIP_NO_BUILD_ISOLATION=0\nRUN pip install torch && pip install flash-attn==2.8.3",
        "RUN pip install https://example.com/flash_attn-2.8.3-cp312-linux_x86_64.whl apex",
        (
            "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\n"
            "RUN apt update && apt install -y cuda-nvcc-12-4\n"
            "RUN pip install torch && pip install --no-build-isolation flash-attn"
        ),
        "FROM nvcr.io/nvidia/pytorch:25.04-py3\nRUN pip install 'torch>=2.4' torchdata==0.9",
        (
            "FROM nvcr.io/nvidia/pytorch:25.04-py3\nRUN pip uninstall -y torch apex\n"
            "RUN pip install torch==2.7.1"
        ),
        'ENV TORCH_CUDA_ARCH_LIST="8.0 9.0a;10.0+PTX Hopper" NVTE_CUDA_ARCHS="90;100a"',
        "ARG TORCH_CUDA_ARCH_LIST\nENV CMAKE_CUDA_ARCHITECTURES=${ARCHS}",
        "RUN export PATH=/a:$PATH && pip install einops",
        "RUN apt-get remove -y libibverbs1 && ./efa_installer.sh -y --skip-kmod",
        "RUN apt-get remove -y vim && rm -rf /var/lib/apt/lists/*",
        (
            "FROM a:2\nARG EFA_INSTALLER_VERSION=1.47.0\n"
            "RUN git clone https://github.com/aws/aws-ofi-nccl /a && ./efa_installer.sh -yk\n"
            "ENV LD_LIBRARY_PATH=/opt/aws-ofi-nccl/lib:$LD_LIBRARY_PATH"
        ),
        "RUN pip install git+https://github.com/NVIDIA/TransformerEngine.git@v1.13",
        'ENV G="-gencode=arch=compute_80,code=sm_86 -gencode=arch=compute_90a,code=compute_90a"',
        "RUN git clone -b v2.27.7-1 https://github.com/NVIDIA/nccl && git clone -b v2.5 /a/nccl",
        "RUN git clone -b core_r0.14.0 https://github.com/NVIDIA/Megatron-LM /m",
        "RUN git clone -b 23.06 https://github.com/NVIDIA/Megatron-LM /m",
        "RUN git clone -b v1.0 https://github.com/NVIDIA/Megatron-LM /m",
        "RUN git clone -b v2.30 https://github.com/NVIDIA/nccl /n",
        "RUN pip install torch --index-url https://download.pytorch.org/whl/nightly/cu128",
        "ARG T\nRUN pip install git+https://github.com/NVIDIA/TransformerEngine.git@${T}",
        (
            "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nCOPY . /a\nRUN /a/install.sh\n"
            "RUN pip3 install --no-build-isolation flash-attn==2.8.3"
        ),
        (
            "RUN git clone https://github.com/NVIDIA/apex && cd apex && APEX_CPP_EXT=1"
            " APEX_CUDA_EXT=1 pip install -v --no-build-isolation ."
        ),
        "RUN apt-get update && apt-get install -y nvidia-cuda-toolkit libnvidia-ml-dev",
        "FROM a:2\nRUN apt-get update && apt-get install -y libfabric1 && ./efa_installer.sh -yk",
        "RUN yes | ./efa_installer.sh -g -k && ./efa_installer.sh --version",
        (
            "FROM nvidia/cuda:12.8.1-runtime-ubuntu22.04\n"
            "COPY --from=build /opt/nccl-tests/build /opt/nccl-tests/build"
        ),
        (
            "RUN git clone https://example.com/a /a\nWORKDIR /a\n"
            "RUN pip install -r requirements.txt\nCOPY requirements.txt /b/"
        ),
        (
            "RUN --mount=type=bind,source=requirements.txt,target=requirements.txt "
            "pip install -r requirements.txt\nCOPY requirements.txt ."
        ),
        "COPY requirements.txt .\nRUN pip install -r requirements.txt\nCOPY requirements.txt /b/",
        "RUN curl -fsSo requirements.txt https://a && pip install -r requirements.txt\nCOPY . .",
        "RUN touch requirements.txt\nRUN pip install -r requirements.txt\nCOPY requirements.txt .",
        "RUN git clone https://a/b .\nRUN pip install -r requirements.txt\nCOPY requirements.txt c",
        (
            "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nCOPY --from=0 /opt/amazon /opt/amazon\n"
            "COPY --from=0 /usr/lib/x86_64-linux-gnu/libefa.so.1 /usr/lib/x86_64-linux-gnu/\n"
            "ENV LD_LIBRARY_PATH=/opt/amazon/efa/lib:$LD_LIBRARY_PATH"
        ),
        (
            "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nRUN ./efa_installer.sh -y --skip-kmod\n"
            "ENV LD_LIBRARY_PATH=/opt/amazon/efa/lib:$LD_LIBRARY_PATH"
        ),
        (
            "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nCOPY --from=0 / /\n"
            "ENV LD_LIBRARY_PATH=/opt/amazon/efa/lib:$LD_LIBRARY_PATH"
        ),
        "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nENV EFA_HOME=/opt/amazon/efa",
        "RUN pip install transformer_engine==2.9.0 transformer_engine_torch==2.9.0",
        "FROM nvcr.io/nvidia/pytorch:26.02-py3\nRUN pip install transformer-engine einops",
        (
            "FROM nvcr.io/nvidia/pytorch:26.02-py3\nARG EFA_INSTALLER_VERSION=1.49.0\n"
            "RUN rm -rf /opt/amazon/openmpi && ./efa_installer.sh -y --skip-kmod\n"
            "ENV LD_LIBRARY_PATH=/opt/amazon/aws-ofi-nccl/lib:$LD_LIBRARY_PATH"
        ),
        "# For p6e-gb200\nFROM --platform=linux/arm64 nvcr.io/nvidia/pytorch:26.02-py3",
        "FROM --platform=linux/arm64 alpine:3.22",
        "FROM --platform=$BUILDPLATFORM nvcr.io/nvidia/pytorch:26.02-py3",
        "ENV CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NVIDIA_VISIBLE_DEVICES=all",
        "COPY .ssh/id_rsa.pub /root/.ssh/authorized_keys\nCOPY .env.example /a/.env",
        "COPY --from=build /root/.ssh /root/.ssh",
        "RUN nvidia-smi || true\nRUN which nvidia-smi\nCMD nvidia-smi",
        "RUN --device=nvidia.com/gpu=all nvidia-smi",
        "RUN python3 -c 'import torch; print(torch.cuda.is_available())'",
        "RUN --mount=type=cache,target=/root/.cache pip install einops",
        "RUN --security=insecure mount -t nfs4 a:/ /mnt && cp -r /mnt/a /a",
        "RUN systemctl enable ssh && echo 'vm.nr_hugepages=1' > /etc/sysctl.d/a.conf",
        "RUN systemctl start ssh || true",
        "RUN ulimit -n 65536 && make -C /a",
        "RUN <<EOF\nnvidia-smi\nEOF",
        "COPY --from=build /home/trainer/a /a\nCOPY home/a /home/trainer/a\nVOLUME /data",
        "ENV NCCL_SOCKET_IFNAME=eth0",
        "RUN aws configure set region us-east-2\nRUN wandb login $KEY && docker login -p $KEY",
        'ENTRYPOINT ["bash", "-c", "exec \\"$@\\"", "--"]\nCMD ["torchrun", "train.py"]',
        'ENTRYPOINT ["bash", "-c", "torchrun train.py", "--"]',
        'ENTRYPOINT ["/entry.sh"]\nCMD ["torchrun", "--nproc-per-node=$GPUS", "train.py"]',
        'CMD ["sh", "-c", "torchrun --nproc-per-node=$GPUS train.py"]',
        'CMD ["python3", "-c", "import os; print(\\"$HOME\\")"]',
        (
            "ARG A=5be9626709af2722333bf54797c954c09edeada3\n"
            "RUN git clone -b ${A} https://example.com/a || (git clone https://example.com/a && "
            "cd a && git checkout ${A})"
        ),
        "RUN curl -fsSL https://example.com/a.tar.gz | tar -xz && test -f a.tar.gz",
        "RUN curl -fsSLo a.tar.gz https://example.com/a.tar.gz && tar -xf a.tar.gz",
        "COPY . .\nRUN curl -fsS https://example.com/a.tar.gz && tar -xf a.tar.gz",
        "RUN mkdir efa && tar -xf aws-efa-installer-1.tar.gz -C efa && cd efa/aws-efa-installer",
        "RUN mkdir efa && tar -xf aws-efa-installer-1.tar.gz && mv aws-efa-installer efa && cd efa",
        "RUN git clone --branch ${TAG} https://example.com/a",
        "WORKDIR /opt/efa\nRUN cd /opt && tar -xf aws-efa-installer-1.tar.gz && cd efa",
        "RUN tar -xf aws-efa-installer-1.tar.gz && cd ${efa_dir}",
        "FROM ubuntu:22.04\nARG A=1 TAG=2\nRUN pip install torchdata==${TAG}",
        (
            "FROM ubuntu:24.04\nARG TAG\nRUN apt-get update && apt-get install -y git\n"
            "RUN git clone --branch ${TAG} https://example.com/a"
        ),
        "FROM nvcr.io/nvidia/pytorch:26.02-py3\nRUN . /a.env && git clone -b $TAG https://a/b",
        "FROM nvcr.io/nvidia/pytorch:26.02-py3\nRUN pip install torchdata==${TORCHDATA_VERSION}",
        "ENV NCCL_NET_PLUGIN=ofi",
        "RUN ./efa_installer.sh -y --skip-kmod --skip-rdma-core --mpi=openmpi5",
        "FROM a:1 AS efa\nFROM a:1\nCOPY --from=docker-cli /a /a",
        "FROM ubuntu:24.04\nUSER 1000\nRUN sudo apt-get update || true",
        "RUN echo 'a <<EOF' && echo don\\'t",
        "RUN git clone https://example.com/a make && cd make",
    ],
)
def test_correct_lines(lines):
    """What ends with its step, names a stage, or is what libraries do anyway, is no finding."""
    assert found(f"{EFA}{lines}\n") == []


@pytest.mark.parametrize("case", cases.read("tables/dockerfiles_right.yaml"))
def test_near_ones_that_are_right(case):
    """What is near a mistake, or hidden by a variable or an unknown base, is no finding."""
    assert found(f"{EFA}{case['lines']}\n") == []


def test_directories_of_the_stage_that_is_made():
    """What another stage is made from names no directories in this one."""
    stages = "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04 AS one\nFROM a:1 AS two\n"
    step = "ENV LD_LIBRARY_PATH=/opt/lib\n"
    assert found(f"{stages}{step}") == []
    (line,) = found(f"{stages}FROM one\n{step}")
    assert line.startswith("warning MEKS-0701 D:4 ENV.LD_LIBRARY_PATH: ")


def test_a_base_that_is_not_filled_in():
    """What stands for the name of an image is no name yet."""
    assert found("FROM {core image}\nRUN true\n") == []
    (line,) = found("FROM core\nRUN true\n")
    assert line.startswith("warning MEKS-0703 D:1 FROM: ")


def test_a_heredoc_that_docker_does_not_see():
    """All its lines are one mistake, and the next one is told again."""
    script = "RUN cat > /a << 'EOF'\n#!/bin/sh\necho one\ncd /b\nEOF\n"
    first, second = found(f"FROM a:1\n{script}RUN true\npip install b\n")
    assert first.startswith("error MEKS-0587 D:4 RUN: echo begins a line")
    assert first.endswith("write <<EOF without a space, or docker does not see the heredoc")
    assert second.startswith("error MEKS-0587 D:8 RUN: pip begins a line")
    assert second.endswith("end the line before it with \\, or write RUN before it")


def test_a_file_that_is_written_in_the_dockerfile():
    """What stands in a heredoc is copied from nowhere."""
    assert found("FROM a:1\nCOPY <<EOF /a\nKUBECONFIG=/tmp/kubeconfig b\nEOF\n") == []
    (line,) = found("FROM a:1\nCOPY kubeconfig /a\n")
    assert line.startswith("warning MEKS-0702 D:2 COPY: ")


def test_arguments_of_before_from():
    """A stage has an argument from before FROM when it takes it, or its base sets the name."""
    outer = "ARG TORCH=2.5.1\nARG CUDA_VERSION=12.4\nFROM a:${CUDA_VERSION} AS one\n"
    step = "RUN pip install torch==${TORCH} && echo $CUDA_VERSION\n"
    expected = "TORCH is given before FROM alone: it is empty in this stage - write ARG TORCH after"
    (line,) = found(f"{outer}{step}")
    assert line == f"warning MEKS-0587 D:4 RUN.TORCH: {expected} FROM"
    assert found(f"{outer}ARG TORCH\n{step}FROM one\n{step}") == []
    assert found(f"{outer}RUN TORCH=1; echo $TORCH ${{TORCH:-2}}\n") == []


def test_arguments_that_the_images_of_nvidia_do_not_set():
    """NVIDIA's images name the versions of what is in them, and not of an EFA to install."""
    outer = "ARG EFA_INSTALLER_VERSION=1.47.0\nFROM nvcr.io/nvidia/pytorch:25.08-py3\n"
    (line,) = found(
        f"{outer}RUN curl -O https://a/aws-efa-installer-${{EFA_INSTALLER_VERSION}}.tar\n"
    )
    assert line.startswith("error MEKS-0587 D:3 RUN.EFA_INSTALLER_VERSION: ")
    assert found(f"{outer}RUN echo $TRANSFORMER_ENGINE_VERSION\n") == []


def test_variables_of_efa_without_efa():
    """An image that has no EFA may tune another network."""
    assert found("FROM a:1\nENV NCCL_PROTO=simple FI_PROVIDER=tcp\n") == []


@pytest.mark.parametrize(
    "base",
    [
        "public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023",
        "763104351884.dkr.ecr.us-east-2.amazonaws.com/pytorch-training:2.10-gpu",
        "nvcr.io/nvidia/pytorch:26.06-py3",
    ],
)
def test_variables_of_efa_that_the_base_brings(base):
    """AWS's and NVIDIA's images have EFA without its installer being run."""
    (line,) = found(f"FROM {base}\nENV NCCL_IB_DISABLE=1\n")
    assert line.startswith("error MEKS-0700 D:2 ENV.NCCL_IB_DISABLE")


def test_names():
    """Dockerfiles are told by their names."""
    names = ("Dockerfile", "Dockerfile.gpu", "train.Dockerfile", "Containerfile")
    assert all(is_dockerfile(name) for name in names)
    assert not any(
        is_dockerfile(name) for name in ("dockerfile_test.py", "Dockerfile.dockerignore")
    )


def test_a_file_that_ends_in_the_middle():
    """A continued last line still belongs to its instruction."""
    assert [each.rest for each in instructions("FROM a:1\nRUN b \\")] == ["a:1", "b"]


def test_another_sign_that_continues_a_line():
    """The directive `escape` is read where Docker reads it, before everything else."""
    lines = "FROM a:1\nRUN cd /a && `\n    apt-get update\n"
    assert found(f"# escape=`\n# syntax\n{lines}") == []
    assert "apt-get begins a line" in found(f"FROM b:1\n# escape=`\n{lines}")[0]


def test_a_base_by_an_argument_that_nothing_declares():
    """It is empty, and the build ends; a file without any argument is filled in by something."""
    known = "ARG BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04\n"
    (finding,) = findings_in_dockerfile(f"{known}FROM ${{BASE_IMAGE}}\n", "Dockerfile")
    assert finding.found.startswith("no ARG before it declares BASE_IMAGE")
    assert finding.remedy == "did you mean BASE?"
    assert list(findings_in_dockerfile(f"{known}FROM $BASE\n", "Dockerfile")) == []
    assert list(findings_in_dockerfile("FROM $BASE_IMAGE\n", "Dockerfile")) == []


@pytest.fixture
def context(tmp_path):
    """Write a Dockerfile with its context, and return what is found."""

    def written(steps, **files):
        base = "FROM nvcr.io/nvidia/pytorch:25.08-py3\n"
        named = {"Dockerfile": f"{base}{steps}\n", "run.py": "", **files}
        for name, content in named.items():
            (tmp_path / name.replace("_txt", ".txt")).write_text(content)
        return [each.replace(f"{tmp_path}/", "") for each in check(tmp_path)[1]]

    return written


LIST = "COPY requirements.txt .\nRUN pip install -r requirements.txt"


def test_a_list_of_packages_beside_the_dockerfile(context):
    """Its torch would take the place of NVIDIA's own."""
    (line,) = context(LIST, requirements_txt="einops\ntorch==2.6.0  # ours\n")
    assert line == (
        "warning MEKS-0587 Dockerfile:3 RUN: requirements.txt: torch==2.6.0 takes the place of "
        "NVIDIA's own PyTorch, for which the Transformer Engine, Apex and flash-attn of this image "
        "were compiled - leave torch out, or take the image that has the version"
    )


@pytest.mark.parametrize(
    ("steps", "listed"),
    [
        (LIST, "torch>=2.4\n# torch==2.6.0\ntorch==2.6.0; sys_platform == 'win32'\n"),
        (f"COPY other.py .\n{LIST}", "torch==2.6.0\n"),
        (f"{LIST} --target /opt/a", "torch==2.6.0\n"),
        (LIST.replace("RUN", "RUN sed -i /torch/d requirements.txt &&"), "torch==2.6.0\n"),
        (LIST.replace("RUN", "RUN python3 -m venv /v && /v/bin/"), "torch==2.6.0\n"),
    ],
)
def test_lists_of_packages_that_replace_nothing(context, steps, listed):
    """What is there is enough, another folder is the context, or pip installs elsewhere."""
    assert context(steps, requirements_txt=listed) == []


@pytest.mark.parametrize("ignored", ["*.py", "**/*.py\n!a.py", "/run.py", "*\n!requirements.txt"])
def test_a_file_that_the_context_leaves_out(context, ignored):
    """The build does not find it."""
    (line,) = context("COPY run.py /", **{".dockerignore": f"# all\n{ignored}\n"})
    found = ".dockerignore leaves run.py out of the build's context: not found"
    assert line == f"warning MEKS-0587 Dockerfile:2 COPY: {found} - write !run.py at its end"


@pytest.mark.parametrize("ignored", ["*.py\n!run.py", "src/*.py", "[r]un.py", "#run.py", "*.pyc"])
def test_a_file_that_the_context_has(context, ignored):
    """An exception counts, and patterns begin at the root."""
    assert context("COPY run.py /", **{".dockerignore": f"{ignored}\n"}) == []
    assert context("COPY run.py /", **{".dockerignore": "*", "Dockerfile.dockerignore": "a"}) == []
