"""The container images that this project builds, and how they are tested and tagged."""

from typing import Literal

Image = Literal["megatron", "fsdp"]
TestLevel = Literal["quick", "standard", "full"]
TagStrategy = Literal["auto", "semantic", "git-sha", "latest"]
