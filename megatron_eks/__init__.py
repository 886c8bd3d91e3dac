"""Megatron on EKS: one typed configuration file becomes a GPU cluster and the jobs on it."""

__version__ = "0.1.0"

DEFAULT_CLUSTER = "cluster.yaml"
RUN_APP = "__app"
"""What `meks` is called with to run the app.py of a folder, by the interpreter that runs it."""
