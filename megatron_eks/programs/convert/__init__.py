"""Checkpoints between Hugging Face and Megatron."""
