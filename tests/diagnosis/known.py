"""Excerpts of logs, each with the form of trouble that it shows."""

from pathlib import Path

import yaml

EXCERPTS: dict[str, dict[str, str]] = {
    f"{file.stem}-{place}-{each['code']}": each
    for file in sorted(Path(__file__).with_name("excerpts").glob("*.yaml"))
    for place, each in enumerate(yaml.safe_load(file.read_text(encoding="utf-8")))
}
