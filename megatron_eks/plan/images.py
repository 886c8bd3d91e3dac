"""The build context of a container image: what its tag is the hash of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageContext:
    """A directory, less what the image does not need."""

    name: str
    directory: str
    exclude: tuple[str, ...]
    """Glob patterns, relative to the directory, as CDK assets take them."""
