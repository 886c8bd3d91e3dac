"""Every test runs on the Node of the environment, however pytest was started."""

from megatron_eks import entry

entry.use_bundled_node()
