"""Rules over Amazon Managed Service for Prometheus: what its scrapers and rules are given."""

import base64
import binascii
from collections.abc import Iterator

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_placeholder, mapping, text


def scrapers(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a scraper its configuration in Base64, and scrape_configs in it.

    Amazon Managed Service for Prometheus API, ScrapeConfiguration.configurationBlob: "the base64
    encoded scrape configuration file"; User Guide, "Scraper configuration".
    """
    for scraper in templates.resources("AWS::APS::Scraper"):
        path = ("ScrapeConfiguration", "ConfigurationBlob")
        given = (mapping(scraper.properties.get(path[0])) or {}).get(path[1])
        inner = given.get("Fn::Base64") if isinstance(given, dict) else None
        plain = text(given)
        if plain is not None and not is_placeholder(plain) and _decoded(plain) is None:
            found = "a text that is not in Base64: the service refuses the scraper"
            yield scraper.find(Code.UNKNOWN_VALUE, path, found, "put Fn::Base64 around it")
            continue
        said = text(inner) if plain is None else _decoded(plain)
        body = _read(said or "") if said and not is_placeholder(said) else None
        if said and not is_placeholder(said) and "scrape_configs" not in (body or {}):
            found = "a configuration without scrape_configs: the service refuses the scraper"
            yield scraper.find(Code.UNKNOWN_VALUE, path, found, "add scrape_configs")


def _decoded(given: str) -> str | None:
    try:
        return base64.b64decode("".join(given.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def rule_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a namespace of rules a file as Prometheus reads it: groups, each with a name.

    Prometheus, "Recording rules", "Configuring rules"; Amazon Managed Service for Prometheus API,
    CreateRuleGroupsNamespace (ValidationException).
    """
    for space in templates.resources("AWS::APS::RuleGroupsNamespace"):
        given = space.properties.get("Data")
        said = text(given) or ""
        if not said or is_placeholder(said.replace("{{", "").replace("$", "")):
            continue
        body = _read(said)
        if body is None or not isinstance(body.get("groups"), list):
            what = "no YAML" if body is None else "no groups at its top"
            found = f"{what}: the service refuses the rules"
            yield space.find(Code.UNKNOWN_VALUE, ("Data",), found, "begin it with groups:")


def _read(said: str) -> "dict[str, Json] | None":
    try:
        value: Json = yaml.safe_load(said)
    except yaml.YAMLError:
        return None
    return value if isinstance(value, dict) else {}
