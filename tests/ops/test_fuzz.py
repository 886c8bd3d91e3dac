"""Whatever a file holds, `meks` answers with findings: no traceback, and within bounds."""

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.__main__ import main
from megatron_eks.config.load import read_documents
from megatron_eks.ops.planning.check import Files
from tests.odd_values import JSON, places, put
from tests.ops.test_cli import CLUSTER, JOB, ROOT

RENDERED = ROOT / "tests" / "snapshots" / "__snapshots__"
TEMPLATE = (RENDERED / "test_templates" / "test_template[Storage].yaml").read_text()
MANIFEST = (RENDERED / "test_manifests/test_manifest[validation-nvidia-smi-p4d].yaml").read_text()
DOCKERFILE = (ROOT / "assets" / "images" / "megatron" / "Dockerfile").read_text()
REGISTRY = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
OUTPUTS = json.dumps({"techpulse-Images": {"MegatronImage": f"{REGISTRY}/m:1"}})

BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 12))
WHOLE = {
    "alias bomb": BOMB,
    "deep lists": "[" * 5000 + "]" * 5000,
    "deep mappings": "{a: " * 5000 + "}" * 5000,
    "deep indent": "".join(f"{' ' * n}a:\n" for n in range(500)),
    "huge number": f"a: {'9' * 100_000}\nb: 1e{'9' * 400}\nc: 0x{'f' * 5000}\n",
    "no numbers": "a: .nan\nb: .inf\nc: -.inf\nd: NaN\n",
    "tabs": "a:\n\tb: 1\n",
    "nul": "a: \x00\n",
    "control signs": "a: \x07\x1b[31m\n",
    "a tag of Python": "a: !!python/object/apply:os.system [id]\n",
    "an unknown tag": "!!set {a, b}\n",
    "a tag on a key": "!Ref a: !Sub [b, {c: !GetAtt d}]\n",
    "merge of a text": "<<: a\n",
    "merge of itself": "a: &a\n  <<: *a\n",
    "anchors on keys": "&a a: *a\n*a : b\n",
    "a list as a key": "? [a, b]\n: c\n",
    "same key": "a: 1\na: 2\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "nothing": "",
    "null": "null\n",
    "a text": "hello\n",
    "a number": "8\n",
    "a list": "- a\n- b\n",
    "lone surrogate": '{"a": "\\ud800"}',
    "JSON numbers": '{"a": NaN, "b": Infinity, "c": 1e999, "d": -0}',
    "JSON, cut": '{"a": [1, 2',
    "a directive": "%YAML 9.9\n---\na: 1\n",
    "half a pair": "a: 'b\n",
}
BYTES = (
    b"a: \xff\xfe\n",
    b"\xef\xbb\xbfschema_version: 1\n",
    "a: 1\n".encode("utf-16"),
    b"a: \xe2\x82",
)
SIGNS = st.sampled_from(
    [b"{", b"}", b"[", b": ", b"\n", b"\t", b"*a", b"&a ", b"!x ", b"<<: ", b"\0"]
)
FUNCTIONS = st.sampled_from(
    ["Ref", "Fn::GetAtt", "Fn::Sub", "Fn::If", "Fn::Join", "Fn::ForEach::A"]
)
JUNK = JSON | st.builds(lambda name, value: {name: value}, FUNCTIONS, JSON)

FILES = {
    "cluster.yaml": CLUSTER,
    "jobs/job.yaml": JOB,
    "outputs.json": OUTPUTS,
    "t.template": TEMPLATE,
    "m.yaml": MANIFEST,
    "m.json": json.dumps(yaml.safe_load(MANIFEST)),
    "Dockerfile": DOCKERFILE,
}
OF_A_PROJECT = ("cluster.yaml", "jobs/job.yaml", "outputs.json")


def answers(name: str, content: bytes) -> bool:
    """Tell whether everything that reads a file ends with findings or without; see no exception."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("jobs").mkdir()
        for each in OF_A_PROJECT[:2]:
            Path(each).write_text(FILES[each])
        Path(name).write_bytes(content)
        files = Files()  # `meks check` without the tools of others
        files.add(Path(name))
        codes = {2 if sorted(files.findings(), key=str) else 0}
        if name in OF_A_PROJECT:
            codes |= {main(["validate"]), main(["plan"])}
    return codes <= {0, 2}


@pytest.mark.parametrize("name", FILES)
def test_files_of_nothing_sensible(name):
    """Bombs, numbers without end, signs that are none, and roots of every kind."""
    for content in (*(text.encode(errors="surrogatepass") for text in WHOLE.values()), *BYTES):
        assert answers(name, content), content[:80]


@pytest.mark.parametrize("name", FILES)
def test_nonsense_inside_of_a_file(name):
    """Each of them as the value of a key of its own, beside what is right."""
    for text in WHOLE.values():
        inside = "extra:\n" + "".join(f"  {line}\n" for line in text.splitlines())
        content = inside + FILES[name]
        assert answers(name, content.encode(errors="surrogatepass")), text[:80]


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(sorted(FILES)),
    slips=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=4) | SIGNS),
        min_size=1,
        max_size=4,
    ),
)
def test_bytes_that_slipped(name, slips):
    """Some bytes left out, others put in, anywhere."""
    content = FILES[name].encode()
    for where, without, added in slips:
        at = int(where * len(content))
        content = content[:at] + added + content[at + without :]
    assert answers(name, content)


@settings(deadline=None, max_examples=150)
@given(name=st.sampled_from(sorted(set(FILES) - {"Dockerfile"})), data=st.data())
def test_values_that_do_not_belong(name, data):
    """Any value, functions of CloudFormation among them, in any place."""
    value = read_documents(FILES[name], name)[0].value
    place = data.draw(st.sampled_from(list(places(value))))
    written = json.dumps(put(value, place, data.draw(JUNK)))
    assert answers(name, written.encode(errors="surrogatepass"))


@pytest.mark.parametrize("text", ["alias bomb", "deep lists", "huge number"])
@pytest.mark.parametrize("command", ["check", "validate"])
def test_time_and_memory_have_a_bound(tmp_path, command, text):
    """A process of half a gigabyte answers as well, and writes no traceback."""
    (tmp_path / "cluster.yaml").write_text(f"kind: a\nmetadata: b\nextra:\n  {WHOLE[text]}")
    done = subprocess.run(  # noqa: S603 -- our own command
        [sys.executable, "-m", "megatron_eks", command, "cluster.yaml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)),
    )
    assert done.returncode in {0, 2}, done.stderr
    assert "Traceback" not in done.stderr
