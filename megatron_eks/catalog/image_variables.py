"""What a job file may not take from our images, or from who starts its pods.

Other people's manifests may have good reasons. Sources: assets/images/, megatron-core 0.19,
language_module.py (NVTE_), and EKS, "EKS Pod Identity" (AWS_).
"""

IMAGE_VARIABLES: dict[str, str] = {
    **dict.fromkeys(("PATH", "LD_PRELOAD", "PYTHONPATH", "HOME"), "the image sets it"),
    "LD_LIBRARY_PATH": (
        "the image sets it, and another one hides libfabric and the EFA plugin: NCCL uses TCP"
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        "the device plugin decides which GPUs a pod sees, and every rank needs its own",
    ),
    **dict.fromkeys(
        ("MEGATRON_LM", "NVIDIA_DRIVER_CAPABILITIES", "PYTHONHOME"), "the image sets it"
    ),
    "PYTHONOPTIMIZE": "Megatron checks itself by assert, which this switches off",
    **dict.fromkeys(
        ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"),
        "Megatron sets it by --attention-backend, and stops where it says something else",
    ),
    **dict.fromkeys(
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_ROLE_ARN",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        "a pod's role comes by EKS Pod Identity",
    ),
    "AWS_PROFILE": "a pod has no profiles; its role comes by EKS Pod Identity",
    **dict.fromkeys(("NODE_RANK", "NNODES", "NPROC_PER_NODE"), "torchrun reads PET_ names only"),
}
"""Each with the reason."""
