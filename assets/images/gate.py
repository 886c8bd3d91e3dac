"""The gate of an image's build: its versions are known to run together, and EFA is there.

gate.py --image megatron|fsdp [--driver VERSION] [--expect NAME=VERSION]...
gate.py --versions FILE.json

In a build it reads what the image holds: Python packages, CUDA, NCCL, and what AWS's EFA installer
recorded. It compares that with the combinations that public issues and release notes name
(combinations.py), and looks for the NCCL plugin where the loader does, for libfabric's provider
efa, for variables that break runs, and for what the programs import. With --versions it judges the
set in a file alone: {"nccl": "2.30.7", "efa_installer": "1.49.0", ...}.

One table on stderr, one line of JSON on stdout. Exit codes: 0 nothing speaks against the image,
2 the command line or the file is wrong, 4 something does: each error says what to do.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import combinations
import image_probe
from image_probe import Found

from megatron_eks.catalog.environment import POLICIES, Verdict
from megatron_eks.programs import program
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.program import Finding, Report, error, usage_error, warning

# An image is for every type, so it hides no device and sets nothing idle; the plugin's own name is
# judged by where it leads. FI_EFA_USE_DEVICE_RDMA is harmless on some types, and ends every program
# on others.
REFUSED = frozenset(
    name
    for name, policy in POLICIES.items()
    if policy.verdict in {Verdict.REFUSED, Verdict.NO_EFFECT}
    or name in {"FI_EFA_IFACE", "FI_EFA_USE_DEVICE_RDMA"}
)

# Without these an image is not what it says it is.
_NEEDED = {
    "megatron": ("megatron_core", "megatron_bridge", "transformer_engine"),
    "fsdp": (),
}
_ALWAYS_NEEDED = ("python", "torch", "cuda", "nccl", "efa_installer", "libfabric")


def judge(found: Mapping[str, Found], expected: Mapping[str, str]) -> Iterator[Finding]:
    """Compare a set of versions with what is known, and with what was asked for."""
    versions = {name: each.version for name, each in found.items()}
    for rule in combinations.broken_rules(versions):
        complete = combinations.completed(versions)
        subject = " with ".join(f"{name} {complete[name]}" for name in rule.when)
        make = error if rule.level == "error" else warning
        yield make(subject, rule.happens, f"{rule.remedy} ({rule.source})")
    for name, version in expected.items():
        if name not in versions:
            yield error(name, f"not found, {version} was asked for", "see what installs it")
        elif combinations.compare(versions[name], version) != 0:
            found_it = f"{versions[name]}, and {version} was asked for"
            yield error(name, found_it, "see what else installs it, and which comes first")


def check_needed(image: str, found: Mapping[str, Found]) -> Iterator[Finding]:
    """Miss what an image is made of."""
    for name in (*_ALWAYS_NEEDED, *_NEEDED[image]):
        if name not in found:
            remedy = "see the Dockerfile's step that installs it"
            yield error(name, "not found in the image", remedy)


def read_versions(path: Path) -> tuple[dict[str, Found], list[Finding]]:
    """Read a set from a file; what is wrong with it is found all at once."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as problem:
        return {}, [usage_error(path, f"not JSON: {problem}", 'write {"nccl": "2.30.7", ...}')]
    if not isinstance(given, dict):
        return {}, [usage_error(path, "not an object", 'write {"nccl": "2.30.7", ...}')]
    found: dict[str, Found] = {}
    problems: list[Finding] = []
    for key, value in given.items():
        name = combinations.canonical(key)
        if name is None:
            known = ", ".join(combinations.NAMES)
            problems.append(usage_error(f"{path}: {key}", "no known component", f"known: {known}"))
        elif not isinstance(value, str) or not combinations.is_version(value):
            remedy = "write it as a string of numbers and dots"
            problems.append(usage_error(f"{path}: {key}", f"{value!r} is no version", remedy))
        else:
            found[name] = Found(value, str(path))
    return found, problems


def write_table(found: Mapping[str, Found], findings: Sequence[Finding]) -> None:
    """Print each component with its version, where it was found, and the verdict."""
    words = {level: set[str]() for level in ("error", "warning")}
    for finding in findings:
        words[finding.level].update(finding.subject.split())
    program.say(f"{'COMPONENT':<22} {'VERSION':<28} {'VERDICT':<8} FOUND IN")
    for name in [each for each in combinations.NAMES if each in found]:
        verdict = next((level for level, named in words.items() if name in named), "ok")
        each = found[name]
        program.say(f"{name:<22} {each.version:<28} {verdict:<8} {each.where}")


def main(argv: Sequence[str], report: Report) -> None:
    """Read, judge, print the table and say what to do."""
    options = _parser().parse_args(argv)
    expected = dict(options.expect)
    if options.versions is not None:
        found, problems = read_versions(options.versions)
        report.findings.extend(problems)
        report.collect(judge(found, expected))
    else:
        system = System(options.root, os.environ)
        found = image_probe.installed_versions(system)
        if options.root == Path("/"):
            found |= image_probe.python_versions()
            report.collect(check_needed(options.image, found))
            report.collect(image_probe.check_modules(options.image, os.environ))
        if options.driver:
            found["driver"] = Found(options.driver, "the nodes' AMI")
        report.collect(judge(found, expected))
        report.collect(image_probe.check_plugin(system))
        report.collect(image_probe.check_provider(system))
        report.collect(image_probe.check_environment(system, REFUSED))
    report.facts["versions"] = {name: each.version for name, each in found.items()}
    write_table(found, report.findings)


def _pair(text: str) -> tuple[str, str]:
    name, _, version = text.partition("=")
    known = combinations.canonical(name)
    if known is None or not combinations.is_version(version):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VERSION")
    return known, version


def _version(text: str) -> str:
    if not combinations.is_version(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no version")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--image", choices=sorted(image_probe.MODULES), help="read this image")
    source.add_argument("--versions", type=Path, metavar="FILE.json", help="judge a set in a file")
    parser.add_argument("--driver", type=_version, help="NVIDIA's driver on the nodes")
    parser.add_argument("--expect", type=_pair, action="append", default=[], metavar="NAME=VERSION")
    parser.add_argument("--root", type=Path, default=Path("/"), help="a recorded tree of an image")
    return parser


if __name__ == "__main__":
    sys.exit(program.run("gate", main, sys.argv[1:]))
