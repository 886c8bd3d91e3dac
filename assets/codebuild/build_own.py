"""One image of the user's, from its folder to the registry, by the steps of build_image.py.

build_own.py check|login|build|test|push|digest

Beside what the environment says there: DOCKERFILE (below the folder `context`), TEST (a command of
the shell that the image has to pass), and for an image that starts from one of ours BASE (its name,
whose gate must pass) and BASE_IMAGE (the image itself, by digest).
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from build_image import PROGRAMS, Build, StopError, main

_REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuite name="image {image}" tests="1" failures="{failures}"><testcase classname="{image}"
name="{case}">{body}</testcase></testsuite>
"""


class OwnBuild(Build):
    """A build of what the user's Dockerfile says."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.context, self.dockerfile = "context", environment.get("DOCKERFILE", "Dockerfile")
        self.base, image = (environment.get(name, "") for name in ("BASE", "BASE_IMAGE"))
        if self.base:
            if not image:
                raise StopError(f"nothing says which {self.base} to start from - run meks build")
            self.arguments["BASE_IMAGE"] = image

    def _test(self, image: str, report: Path) -> None:
        cases: dict[str, tuple[str, ...]] = {}
        if self.base:
            driver = f"--driver={self.arguments['NODE_DRIVER_VERSION']}"
            gate = f"{PROGRAMS}/gate.py", f"--image={self.base}", driver
            cases["gate"] = ("python3", image, *gate)
        cases["test"] = ("/bin/sh", image, "-c", self._environment["TEST"])
        for case, words in cases.items():
            values = {"image": self.image, "case": case}
            try:
                self._in_container(*words)
            except StopError as stop:
                report.write_text(_REPORT.format(failures=1, body="<failure/>", **values))
                raise StopError(f"the image does not pass its {case}: {stop}") from None
            report.write_text(_REPORT.format(failures=0, body="", **values))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], OwnBuild))
