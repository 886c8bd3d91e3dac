"""Writes files of the user's at once or not at all."""

import os
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import Failure


def replace(file: Path, text: str, remedy: str) -> None:
    """Put a text in the place of a file; what was there stays where that fails."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(file)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        found = f"{file} cannot be written: {error.strerror or error}"
        remedy = f"see to the disk and the folder, {remedy}"
        raise Failure(Code.NOT_WRITTEN, found, remedy) from error
