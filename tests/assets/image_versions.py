"""What each image is expected to hold; the gate in its build prints what it does hold."""

from megatron_eks.catalog import pins

_EFA_STACK = {
    # The installer says what it brings in /opt/amazon/efa_installed_packages; libfabric and
    # rdma-core as ai-dynamo/dynamo records them, the plugin as aws/deep-learning-containers#6668.
    "efa_installer": pins.EFA_INSTALLER_VERSION,
    "aws_ofi_nccl": "1.20.0",
    "libfabric": "2.4.0amzn5.0",
    "rdma_core": "63.0",
    "driver": pins.NODE_DRIVER_VERSION,
}
IMAGE_VERSIONS = {
    # torch, CUDA, Transformer Engine and NCCL as awslabs/awsome-distributed-ai read them in the
    # base image (examples/training/megatron-bridge, README of its DeepEP v2 image, 2026-09).
    "megatron": {
        "python": "3.12.3",
        "torch": "2.13.0a0+8145d630e8",
        "cuda": "13.3",
        "nccl": "2.30.5",
        "transformer_engine": "2.17.1",
        "transformers": "5.12.1",
        "nvidia_resiliency_ext": "0.6.0",
        "megatron_core": pins.MEGATRON_CORE_VERSION,
        "megatron_bridge": pins.MEGATRON_BRIDGE_VERSION,
        **_EFA_STACK,
    },
    # As in the base image's own list (docs/pytorch/changelog of aws/deep-learning-containers).
    "fsdp": {
        "python": "3.12",
        "torch": "2.13.0",
        "cuda": "13.3",
        "nccl": "2.30.7",
        **_EFA_STACK,
    },
}
