"""`make bench`: prints each measurement beside its bar."""

import sys

from benchmarks import prepare, synth
from megatron_eks.ops.output import table

if __name__ == "__main__":
    lines = table(("WHAT", "MEDIAN", "BAR", ""), [*synth.rows(), *prepare.rows()])
    sys.stdout.writelines(f"{line}\n" for line in lines)
