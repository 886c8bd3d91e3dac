"""The YAML reader: scalars, places, and everything it refuses to be broken by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_eks.config.load import read_documents, read_json, read_mapping
from megatron_eks.config.scalars import scalar_1_1


def messages(text: str) -> list[str]:
    """Return the findings of a text as users see them."""
    return [str(finding) for finding in read_mapping(text, "f.yaml").findings]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.35", 1.35),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-12-01", "2026-12-01"),
        ("0o17", 15),
        ("010", 10),
        ("0x1f", 31),
        ("~", None),
        ("true", True),
        ("True", True),
        ('"1.35"', "1.35"),
        ("'true'", "true"),
        ("1e999", "1e999"),
        ("9" * 200, "9" * 200),
        (".5", 0.5),
        ("-", [None]),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    """Only YAML 1.2's core schema turns plain text into something else."""
    assert read_mapping(f"key: {text}" if text != "-" else "key:\n  -", "f").value == {"key": value}


def test_places_are_the_lines_of_keys():
    """A nested value is found on the line of its own key."""
    document = read_mapping("a:\n  b:\n    - c: 1\n    - d:\n        2\n", "f")
    assert document.line(("a", "b", 1, "d")) == 4
    assert document.line(("a", "b", 1, "unknown", "deeper")) == 4
    assert document.line(()) == 1


def test_several_documents_know_their_own_lines():
    """The second document of a stream starts where it stands in the file."""
    documents = read_documents("a: 1\n---\nb: 2\n", "f")
    assert [document.value for document in documents] == [{"a": 1}, {"b": 2}]
    assert documents[1].line(()) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: 2\na: 3\n",
            "error MEKS-0003 f.yaml:3 a: 'a' is given twice, first on line 1 - keep one of the two",
        ),
        (
            "- a\n",
            "error MEKS-0004 f.yaml:1 .: a list - write `key: value` lines, as in the examples",
        ),
        (
            "",
            "error MEKS-0004 f.yaml:1 .: an empty file - "  # noqa: ISC004 -- one message
            "write `key: value` lines, as in the examples",
        ),
        ("a: 1\n---\nb: 2\n", "error MEKS-0004 f.yaml:3 .: 2 YAML documents - keep one in a file"),
    ],
)
def test_refusals(text, message):
    """Each refusal names the line and the remedy."""
    assert messages(text) == [message]


@pytest.mark.parametrize(
    "text",
    [
        "a: \t- b",
        "a: *nothing",
        "\x00",
        "a: &x [*x]",
        "[" * 5000,
        "{" * 200 + "}" * 200,
        "%YAML 9.9\n---\na: 1",
    ],
)
def test_broken_text_is_a_finding(text):
    """Broken, recursive and endlessly nested text ends in a finding, never an exception."""
    assert messages(text)


def test_alias_bomb_is_refused():
    """A file that expands beyond any honest size is refused before it fills the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    refs = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))
    assert "more than" in messages("\n".join([*lines, *refs]))[0]


def test_cloudformation_short_forms_become_long_ones():
    """`!Ref`, `!Sub` and `!GetAtt` read like the JSON that CDK writes."""
    value = read_mapping(
        "a: !Ref B\nc: !GetAtt D.E.F\ng: !Sub '${H}'\ni: !Join ['', [j]]\n", "f"
    ).value
    assert value == {
        "a": {"Ref": "B"},
        "c": {"Fn::GetAtt": ["D", "E.F"]},
        "g": {"Fn::Sub": "${H}"},
        "i": {"Fn::Join": ["", ["j"]]},
    }


def test_merge_keys_fill_in_what_is_missing():
    """`<<` works as kubectl reads it: own keys win."""
    value = read_mapping("base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\n", "f").value
    assert value == {"base": {"x": 1, "y": 2}, "own": {"x": 1, "y": 3}}


def test_broken_json_is_a_finding():
    """The fast JSON path falls back to the reader that knows places."""
    assert read_json('{"a": 1}', "f.json").value == {"a": 1}
    assert "MEKS-0002 f.json:2" in str(read_json('{"a":\n}}', "f.json").findings[0])


@given(st.text(max_size=200))
def test_no_text_raises(text):
    """Any text gives a document or findings."""
    document = read_mapping(text, "f")
    assert isinstance(document.value, dict) or document.findings


@pytest.mark.parametrize(
    ("text", "value"),
    [("0755", 493), ("Yes", True), ("off", False), ("yEs", "yEs"), ("089", 89), ("1.35", 1.35)],
)
def test_manifests_and_templates_follow_yaml_1_1(text, value):
    """As kubectl and CloudFormation read them, which is what counts for their files."""
    (document,) = read_documents(text, "f", scalar_1_1)
    assert document.value == value
