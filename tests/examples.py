"""The examples, with Capacity Blocks that have not ended on the day of the test."""

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from megatron_eks.project import ROOT

NAMES = sorted(folder.name for folder in (ROOT / "examples").iterdir())


def copy(name: str, folder: Path) -> Path:
    """Copy one example and return its cluster file."""
    shutil.copytree(ROOT / "examples" / name, folder, dirs_exist_ok=True)
    end = datetime.now(tz=UTC) + timedelta(days=30)
    cluster = folder / "cluster.yaml"
    text = re.sub(r"ends_at: [^}\s]+", f"ends_at: {end:%Y-%m-%dT11:30:00Z}", cluster.read_text())
    cluster.write_text(text)
    return cluster
