"""Writes megatron_eks/rules/shapes/dcgm.json: the names of DCGM's fields, by what they begin with.

    python -m tests.upstream.dcgm_fields FILE

The file is pkg/dcgm/const_fields.go of NVIDIA/go-dcgm, whose two maps hold the names of now and
of before: dcgm-exporter looks every field up there.
"""

import json
import re
import sys
from pathlib import Path

TABLE = Path(__file__).parents[2] / "megatron_eks" / "rules" / "shapes" / "dcgm.json"
_NAME = re.compile(r'^\s+"(DCGM_FI_(?:DEV_|PROF_|SYSTEM_)?)(\w+)":', re.MULTILINE)


def main(source: str) -> None:
    """Write the table."""
    found: dict[str, set[str]] = {}
    for prefix, rest in _NAME.findall(Path(source).read_text()):
        found.setdefault(prefix, set()).add(rest)
    table = {prefix: " ".join(sorted(found[prefix])) for prefix in sorted(found)}
    TABLE.write_text(json.dumps(table, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
