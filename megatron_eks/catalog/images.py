"""The container images that this project builds, and how they are tested and tagged."""

from typing import Literal, get_args

Image = Literal["megatron", "fsdp"]
TestLevel = Literal["quick", "standard", "full"]
TagStrategy = Literal["auto", "semantic", "git-sha", "latest"]


def is_ours(image: str) -> bool:
    """Tell whether an image is one of these; others are the user's, by digest or by name."""
    return image in get_args(Image)


def title(image: str) -> str:
    """Return how the image's keys in outputs.json begin, and its logical ids."""
    words = "".join(word.capitalize() for word in image.split("-"))
    return words if is_ours(image) else f"Own{words}"
