"""Tables of names that stand in text files of this folder."""

import pkgutil
import re


def sections(name: str) -> dict[str, str]:
    """Return the parts of a file, each by the head in brackets above it, without comments."""
    # In an image of the user's the package is in a zip, where no path leads to a file.
    return parts((pkgutil.get_data("megatron_eks.catalog", name) or b"").decode("utf-8"))


def parts(text: str) -> dict[str, str]:
    """Return the parts of a text, each by the head in brackets above it, without comments."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    _, *found = re.split(r"^\[(\w+)\]\n", text, flags=re.MULTILINE)
    return dict(zip(found[::2], found[1::2], strict=True))


def entries(section: str) -> list[tuple[str, str]]:
    """Return what stands before and behind the first colon of each entry; indented lines go on."""
    lines = section.strip().replace("\n ", " ").splitlines()
    return [(head, rest) for head, _, rest in (line.partition(": ") for line in lines)]


def by_name(section: str) -> dict[str, str]:
    """Return what entries say by each of the names that they are about."""
    return {name: said for names, said in entries(section) for name in names.split()}
