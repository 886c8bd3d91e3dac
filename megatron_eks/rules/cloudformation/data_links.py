"""Rules over the data repository associations that one file system has together."""

import json
import re
from collections.abc import Iterator
from itertools import combinations

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    items,
    mapping,
    number,
    shown,
    text,
    truth,
    written,
)

_OVERLAPS = (
    ("FileSystemPath", "path", "give each a directory of its own"),
    ("DataRepositoryPath", "prefix", "use prefixes of which none holds another"),
)


_DAYS = range(1, 91)
_LINK = "AWS::FSx::DataRepositoryAssociation"
_BUCKET = "AWS::S3::Bucket"
_SLOW = ("DEEP_ARCHIVE", "GLACIER")
# Beside these a rule is for some of a prefix's objects.
_NARROW = ("ObjectSizeGreaterThan", "ObjectSizeLessThan", "TagFilters")
_ADDRESS = re.compile(
    r"\$\{(?P<name>[A-Za-z0-9]+)\.[A-Za-z]*DomainName\}|\.s3[.a-z0-9-]*\.amazonaws\.com"
)
_REF = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)(?P<attribute>\.[A-Za-z]+)?\}")


def overlaps(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse associations of one file system that hold each other, in the file system or in S3.

    FSx for Lustre User Guide, "Linking your file system to an Amazon S3 bucket": two data
    repository associations cannot have overlapping file system paths, nor overlapping data
    repository paths; s3://bucket/prefix stands for s3://bucket/prefix/.
    """
    links = list(templates.resources(_LINK))
    for key, what, remedy in _OVERLAPS:
        for first, second in combinations(links, 2):
            one, other = _folder(first, key), _folder(second, key)
            if one is None or other is None or not _on_one_system(first, second, templates):
                continue
            if one.startswith(other) or other.startswith(one):
                value = shown(written(second.properties.get(key)))
                found = f"{value} overlaps the {what} of {first.id}: FSx refuses one of them"
                yield second.find(Code.DATA_REPOSITORY, (key,), found, remedy)


def _folder(link: Resource, key: str) -> str | None:
    """Return a path, closed by a slash; None when a part of it means something else elsewhere."""
    value: Json = link.properties.get(key)
    # Names of its own, which another text may give to something else.
    renamed = isinstance(value, dict) and isinstance(value.get("Fn::Sub"), list)
    path = None if renamed else written(value)
    if not path or "${}" in path:
        return None
    return f"{path.rstrip('/')}/"


def _on_one_system(first: Resource, second: Resource, templates: TemplateSet) -> bool:
    """Tell whether both are made, and belong to one file system."""
    conditions = {text for each in (first, second) if (text := str(each.body.get("Condition")))}
    either = len(conditions) > 1 and "None" not in conditions
    systems = [each.properties.get("FileSystemId") for each in (first, second)]
    if either or any(is_absent(each) for each in systems):
        return False
    one, other = (
        templates.target(value, each.file)
        for value, each in zip(systems, (first, second), strict=True)
    )
    if one is not None or other is not None:
        return one is other
    # A parameter of one template may differ from that of another one.
    same = json.dumps(systems[0]) == json.dumps(systems[1])
    return same and (first.file == second.file or isinstance(systems[0], str))


def locations(templates: TemplateSet) -> Iterator[Finding]:
    """Require s3:// before a bucket that a file system is linked to.

    FSx API, CreateDataRepositoryAssociation.DataRepositoryPath and
    CreateFileSystemLustreConfiguration.ImportPath: Ref of a bucket is its name alone.
    """
    for link in templates.resources(_LINK):
        yield from _location(link, ("DataRepositoryPath",), templates)
    for system in templates.resources("AWS::FSx::FileSystem"):
        for key in ("ImportPath", "ExportPath"):
            yield from _location(system, ("LustreConfiguration", key), templates)


def _location(user: Resource, path: Path, templates: TemplateSet) -> Iterator[Finding]:
    value: Json = dict(user.properties)
    for key in path:
        value = (mapping(value) or {}).get(str(key))
    said = written(templates.default(value, user.file)) or ""
    match = _REF.match(said)
    bucket = templates.target({"Ref": match["name"]}, user.file) if match else None
    of_bucket = bucket is not None and bucket.type == _BUCKET
    # A plain text of an association has a rule of its own.
    plain = not isinstance(value, str) or len(path) > 1
    if said.startswith("s3://") and (address := _ADDRESS.search(said)):
        found = f"{shown(said)} has the bucket's address in it: FSx finds no such bucket"
        name = f"${{{address['name']}}}" if address["name"] else "BUCKET"
        yield user.find(Code.DATA_REPOSITORY, path, found, f"write s3://{name}/...")
    elif plain and said.startswith("arn:"):
        found = f"{shown(said)} is an ARN, and FSx takes s3://BUCKET/PREFIX: it refuses it"
        rest = said.partition(":::")[2] or "BUCKET/PREFIX"
        yield user.find(Code.DATA_REPOSITORY, path, found, f"write s3://{rest}")
    elif of_bucket or (plain and said and "$" not in said and not said.startswith("s3://")):
        found = f"{shown(said)} does not start with s3://: FSx refuses it"
        name = f"${{{match['name']}}}" if match else "BUCKET"
        yield user.find(Code.DATA_REPOSITORY, path, found, f"write s3://{name}/...")


def backups(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of daily backups of a file system that an association links to S3.

    FSx for Lustre User Guide, "Working with backups": of persistent file systems that are not
    linked to a bucket alone.
    """
    for system in templates.resources("AWS::FSx::FileSystem"):
        settings = mapping(system.properties.get("LustreConfiguration")) or {}
        days = number(settings.get("AutomaticBackupRetentionDays"))
        # Of scratch file systems there are none at all, which is said elsewhere.
        scratch = str(settings.get("DeploymentType")).startswith("SCRATCH")
        linked = next(
            (
                link
                for link in templates.resources(_LINK)
                if templates.target(link.properties.get("FileSystemId"), link.file) is system
            ),
            None,
        )
        if days in _DAYS and not scratch and linked is not None:
            found = f"{linked.id} links the file system to S3, and such a one has no backups"
            path = ("LustreConfiguration", "AutomaticBackupRetentionDays")
            remedy = "remove it, and export what must be kept to the bucket"
            yield system.find(Code.DATA_REPOSITORY, path, found, remedy, Level.WARNING)


def archived(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a linked prefix whose objects go where they cannot be read at once.

    S3 User Guide, "Restoring an archived object": reads of GLACIER and DEEP_ARCHIVE, and of the
    archive tiers of Intelligent-Tiering, fail (InvalidObjectState) until somebody restores them;
    FSx reads an object when a file is opened.
    """
    for bucket in templates.resources(_BUCKET):
        linked = [each for each in _prefixes(bucket, templates) if each is not None]
        if not linked:
            continue
        for path, prefix, where in _moves(bucket):
            met = next((each for each in linked if each.startswith(prefix)), None)
            if met is not None:
                which = f"objects below {shown(met)}" if met else "all objects"
                found = f"{which} go to {where}, and a file system reads them from there: opening "
                found += "such a file fails"
                remedy = "leave the linked prefix out, or write GLACIER_IR"
                yield bucket.find(Code.DATA_REPOSITORY, path, found, remedy, Level.WARNING)


def _prefixes(bucket: Resource, templates: TemplateSet) -> Iterator[str | None]:
    """Return the prefixes that a file system reads; None for one that nobody can know."""
    name = text(bucket.properties.get("BucketName"))
    for link in templates.resources(_LINK):
        said = (written(link.properties.get("DataRepositoryPath")) or "").removeprefix("s3://")
        place, _, prefix = said.partition("/")
        match = _REF.fullmatch(place)
        target = templates.target({"Ref": match["name"]}, link.file) if match else None
        policies = mapping(link.properties.get("S3")) or {}
        # What is only exported lies on the file system, and is read from there.
        reads = is_absent(policies.get("AutoExportPolicy")) or not (
            is_absent(policies.get("AutoImportPolicy"))
            and truth(link.properties.get("BatchImportMetaDataOnCreate")) is not True
        )
        if not reads:
            continue
        if target is bucket or (name is not None and place == name):
            yield None if "$" in prefix else f"{prefix.rstrip('/')}/" if prefix else ""


def _moves(bucket: Resource) -> Iterator[tuple[Path, str, str]]:
    """Return where objects are archived: the place that says so, their prefix, and whereto."""
    cycle = mapping(bucket.properties.get("LifecycleConfiguration")) or {}
    for index, value in enumerate(items(cycle.get("Rules")) or []):
        rule = mapping(value) or {}
        prefix = text(rule.get("Prefix")) if not is_absent(rule.get("Prefix")) else ""
        narrow = any(not is_absent(rule.get(key)) for key in _NARROW)
        if rule.get("Status") != "Enabled" or narrow or prefix is None:
            continue
        listed = [
            mapping(rule.get("Transition")),
            *map(mapping, items(rule.get("Transitions")) or []),
        ]
        for each in listed:
            kind = text((each or {}).get("StorageClass"))
            if kind in _SLOW:
                yield ("LifecycleConfiguration", "Rules", index), prefix, str(kind)
                break
    tiering = items(bucket.properties.get("IntelligentTieringConfigurations")) or []
    for index, value in enumerate(tiering):
        body = mapping(value) or {}
        prefix = text(body.get("Prefix")) if not is_absent(body.get("Prefix")) else ""
        if body.get("Status") == "Enabled" and prefix is not None and not body.get("TagFilters"):
            yield ("IntelligentTieringConfigurations", index), prefix, "an archive tier"
