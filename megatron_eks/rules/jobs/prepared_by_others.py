"""Rules over data that one job of a set prepares and another one trains on, and over copies."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.output_places import directory_in
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import megatron_words, options_of, split_words
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import Container, Manifest

_PREPARES = re.compile(r"(^|[\s/;&|(])preprocess_data\.py\b")
_DATA = ("--data-path", "--train-data-path", "--valid-data-path")
_TEXT = "text"
# The project's own program, which copies whatever a bucket has as well, and that of Hugging Face.
_DOWNLOADS = re.compile(
    r"/programs/fetch\.py\s(?![^\n;&|]*--s3-uri)[^\n;&|]*--directory[ =](?P<own>\S+)"
    r"|\b(huggingface-cli|hf)\s+download\s[^\n;&|]*--local-dir[ =](?P<hub>\S+)"
)
_WRITTEN_TO = re.compile(r"--(?:target|save|save-dir)[ =](\S+?)/?(?=\s|$)")
_COPIES = re.compile(r"\baws\s+s3\s+(cp|mv)\s+(?P<rest>[^\n;&|]*)")


def prefixes(together: ManifestSet) -> Iterator[Found]:
    """Refuse a prefix that preprocess_data.py was given, where training wants what it wrote.

    Megatron-LM, tools/preprocess_data.py: it writes PREFIX_KEY_document.bin, KEY being text where
    --json-keys says nothing else. Tokens of another tokenizer are other words.
    """
    written = [each for each in map(_prepared, together.objects) if each is not None]
    for manifest in together.objects if written else ():
        for pod in manifest.pods:
            for container in pod.containers:
                words = megatron_words(container)
                options = {flag: (path, value) for path, flag, value in options_of(words)}
                for flag in _DATA:
                    path, value = options.get(flag, ((), ""))
                    for job, prefix, keys, tokenizer in written:
                        if not may_share(manifest, job) or manifest is job:
                            continue
                        names = [f"{prefix}_{key}_document" for key in keys]
                        if value == prefix:
                            found = f"{flag} {shown(value)}, and {job.title} writes {names[0]}"
                            finding = manifest.find(
                                Code.TRAINING_FLAG, path[1:], found, f"write {names[0]}"
                            )
                            yield manifest, finding
                        own = options.get("--tokenizer-model", ((), ""))
                        other = own[1] != tokenizer and "" not in (own[1], tokenizer)
                        if value in names and other and not is_placeholder(own[1]):
                            found = (
                                f"--tokenizer-model {shown(own[1])}, and {job.title} made these "
                            )
                            found += f"tokens with {shown(tokenizer)}: they are other words"
                            remedy = "use one tokenizer for both"
                            code = Code.TRAINING_FLAG
                            yield (
                                manifest,
                                manifest.find(code, own[0][1:], found, remedy, Level.WARNING),
                            )


def _prepared(manifest: Manifest) -> tuple[Manifest, str, list[str], str] | None:
    """Return what a job tokenizes: the prefix, the keys of each document, and the tokenizer."""
    for pod in manifest.pods:
        for container in pod.containers:
            if not _PREPARES.search(container.line):
                continue
            words = [(path, word) for path, line in told(container) for word in split_words(line)]
            options = {
                flag.replace("_", "-"): (index, value)
                for index, (_, flag, value) in enumerate(options_of(words))
            }
            prefix = directory_in(container, options.get("--output-prefix", (0, ""))[1])
            if prefix.startswith("/") and not is_placeholder(prefix):
                tokenizer = options.get("--tokenizer-model", (0, ""))[1]
                unknown = is_placeholder(tokenizer) or not tokenizer.startswith("/")
                return manifest, prefix, _keys(words), "" if unknown else tokenizer
    return None


def _keys(words: "list[tuple[Path, str]]") -> list[str]:
    texts = [word for _, word in words]
    for name in ("--json-keys", "--json_keys"):
        if name in texts:
            after = texts[texts.index(name) + 1 :]
            end = next((n for n, word in enumerate(after) if word.startswith("-")), len(after))
            return after[:end] or [_TEXT]
    return [_TEXT]


def fetched(together: ManifestSet) -> Iterator[Found]:
    """Refuse weights that a job of the set fetches from Hugging Face as Megatron's checkpoint.

    Megatron-LM, megatron/training/checkpointing.py, load_checkpoint: it looks for
    latest_checkpointed_iteration.txt ("No checkpoint found in load directory or pretrained
    directory"); with --load alone it starts from random weights.
    """
    filled = [each for manifest in together.objects for each in _fetched(manifest)]
    lines = [each.line for one in together.objects for pod in one.pods for each in pod.containers]
    for manifest in together.objects if filled else ():
        for pod in manifest.pods:
            for container in pod.containers:
                for path, flag, value in options_of(megatron_words(container)):
                    if flag not in {"--load", "--pretrained-checkpoint"}:
                        continue
                    for job, directory in filled:
                        # What converts in place, or saves there, makes it one of Megatron's.
                        made = any(directory in _WRITTEN_TO.findall(each) for each in lines)
                        same = value.rstrip("/") == directory and may_share(manifest, job)
                        if same and not made and job is not manifest:
                            found = f"{flag} {shown(value)}, which {job.title} fills with weights "
                            found += "of Hugging Face: Megatron finds no checkpoint there"
                            remedy = "name the directory of the converted ones"
                            first = flag == "--pretrained-checkpoint"
                            level = Level.ERROR if first else Level.WARNING
                            code = Code.TRAINING_FLAG
                            yield manifest, manifest.find(code, path[1:], found, remedy, level)


def _fetched(manifest: Manifest) -> Iterator[tuple[Manifest, str]]:
    """Return directories that a job downloads a model into."""
    for pod in manifest.pods:
        for container in pod.containers:
            match = _DOWNLOADS.search(container.line)
            directory = (match["own"] or match["hub"] or "").rstrip("/") if match else ""
            if directory.startswith("/") and not is_placeholder(directory):
                yield manifest, directory


def copies(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a copy of a whole prefix of S3 as if it were one object.

    AWS CLI, "aws s3 cp", --recursive: without it the command is on one object, and a prefix is
    none: "An error occurred (404) when calling the HeadObject operation".
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, said in _copied(container):
                words = said.split()
                source = next((word for word in words if not word.startswith("-")), "")
                source = source.strip("\"'")
                whole = source.startswith("s3://") and source.endswith("/")
                if whole and "--recursive" not in words and not is_placeholder(source):
                    found = f"{shown(source)} is a prefix, and cp takes one object without "
                    found += "--recursive: it ends with 404"
                    remedy = "add --recursive, or use aws s3 sync"
                    yield Finding(Code.REFUSED_IN_POD, path, found, remedy)


def _copied(container: Container) -> Iterator[tuple[Path, str]]:
    words = container.words
    for path, line in words:
        for match in _COPIES.finditer(line):
            yield path, match["rest"]
    plain = [word for _, word in words]
    for start in range(len(plain) - 3):
        if plain[start : start + 2] == ["aws", "s3"] and plain[start + 2] in {"cp", "mv"}:
            yield words[start + 3][0], " ".join(plain[start + 3 :])
    # The entry point of AWS's image is the program itself.
    if plain[:1] == ["s3"] and plain[1:2] in (["cp"], ["mv"]) and len(plain) > 2:  # noqa: PLR2004 -- and a source
        yield words[2][0], " ".join(plain[2:])
