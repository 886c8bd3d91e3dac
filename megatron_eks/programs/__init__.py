"""What runs in the containers: `python -m megatron_eks.programs.NAME`, in images and checkouts."""
