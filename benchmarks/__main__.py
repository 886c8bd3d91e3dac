"""`make bench`: prints each measurement beside its bar."""

import sys

from benchmarks import (
    errors,
    explain,
    exporter,
    operator_scale,
    prepare,
    report,
    search,
    status,
    synth,
)
from megatron_eks.ops.output import table

if __name__ == "__main__":
    report.main()
    rows = [
        *(*errors.rows(), *search.rows(), *synth.rows(), *prepare.rows()),
        *(*operator_scale.rows(), *status.rows(), *explain.rows(), *exporter.rows()),
    ]
    lines = table(("WHAT", "MEDIAN", "BAR", ""), rows)
    sys.stdout.writelines(f"{line}\n" for line in lines)
