"""The FSDP and DDP trainer."""
