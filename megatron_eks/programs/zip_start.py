"""Starts our programs in every container, as the __main__ of where they are.

python3 PLACE PROGRAM [ARGUMENT...]

PLACE is the zip that goes to images of the user's, or the folder that is the same in ours. What the
program starts finds the others as well: PLACE comes first on PYTHONPATH. This file is the one that
an older Python reads too, which is told what is needed instead of failing elsewhere.
"""

import os
import runpy
import sys

_OLDEST = (3, 11)
_USAGE = 2

if __name__ == "__main__":
    if sys.version_info < _OLDEST:
        sys.stderr.write(
            "error image: its python3 is {}.{}, and this job's programs need 3.11 - use an image "
            "with a newer one first in PATH\n".format(*sys.version_info)
        )
        sys.exit(_USAGE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.argv[0], before)))
    program = sys.argv.pop(1)
    runpy.run_module("megatron_eks.programs." + program, run_name="__main__", alter_sys=True)
