"""Rules over the network interfaces of launch templates."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.cloudformation.card_layouts import (
    FORMER_FIRST,
    Slots,
    advice,
    by_card,
    cards_written,
    former_cards,
    former_rest,
    is_former_layout,
    misnumbered,
    recommended,
    slots_written,
)
from megatron_eks.rules.launch_templates import (
    DATA,
    EFA_TYPES,
    INTERFACES,
    Interface,
    LaunchTemplate,
    launch_templates,
)
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, is_given, items, mapping, number, shown, text

_TYPES = EFA_TYPES | {"interface"}
_PRIMARY = (0, 0)

# Nodes of these types are paid for their network between nodes; others have EFA as well.
_BOUGHT_FOR_EFA = re.compile(r"p(4d|5|6)")
_SAYS_EFA = re.compile(r"EFA|(?<![A-Za-z])efa(?![a-z])|Efa(?![a-z])")


def efa_layout(templates: TemplateSet, only: Sequence[LaunchTemplate] = ()) -> Iterator[Finding]:
    """Require on every network card what EC2 recommends for the instance type.

    EC2 User Guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network
    cards": an ordinary interface first, then an EFA-only one on every card that can have it.
    """
    for template in only or launch_templates(templates):
        interfaces = template.interfaces
        if interfaces is None:
            continue
        instance = template.instance
        twice = misnumbered(interfaces, instance) if instance is not None else None
        if twice is not None:
            yield _of_another_card(template, interfaces, *twice)
            continue
        broken = [*_unknown_types(template, interfaces), *_slots(template, interfaces)]
        yield from broken
        if instance is not None and not broken and _all_known(interfaces):
            meant = _meant_for_efa(template, templates)
            yield from _against_catalogue(template, interfaces, instance, meant=meant)


def without_template(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse node groups of types that are bought for EFA which no launch template gives it.

    EKS User Guide, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter": what
    EKS makes by itself has ordinary interfaces. One node alone needs none.
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        types = [text(each) for each in items(group.properties.get("InstanceTypes")) or []]
        name = (types[0] if types else None) or ""
        sizes = mapping(group.properties.get("ScalingConfig")) or {}
        alone = number(sizes.get("MaxSize")) in {None, 0, 1}
        instance = INSTANCES.get(name)
        plain = is_absent(group.properties.get("LaunchTemplate"))
        bought = all(_BOUGHT_FOR_EFA.match(each or "") for each in types)
        if plain and instance is not None and bought and not alone:
            found = f"no launch template, so none of the {instance.efa_interfaces} EFA interfaces "
            found += f"of {name} is attached: traffic between nodes falls back to TCP"
            remedy = "name a launch template with an EFA interface on every card"
            yield group.find(Code.EFA_INTERFACES, ("LaunchTemplate",), found, remedy)


def security_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Require security groups on each interface, and nowhere else.

    EC2 API, RequestLaunchTemplateData.SecurityGroupIds: not together with interfaces, and
    terraform-aws-eks issue 1907. Without any an interface gets the VPC's default group, which
    lets in neither the control plane nor EFA traffic.
    """
    for template in launch_templates(templates):
        for key in ("SecurityGroupIds", "SecurityGroups"):
            if template.interfaces and is_given(template.data.get(key)):
                yield template.resource.find(
                    Code.INTERFACES_AND_GROUPS,
                    (DATA, key),
                    f"{key} beside {INTERFACES}: EC2 refuses the two together",
                    "name the groups on every interface, under Groups",
                )
        for interface in template.interfaces or []:
            existing = not is_absent(interface.body.get("NetworkInterfaceId"))
            needed = (template.node_groups or interface.is_efa) and not existing
            if needed and items(interface.body.get("Groups")) == []:
                yield template.resource.find(
                    Code.INTERFACES_AND_GROUPS,
                    interface.path,
                    "an interface without Groups gets the VPC's default security group",
                    "give every interface the groups of the first",
                )


def _of_another_card(
    template: LaunchTemplate,
    interfaces: list[Interface],
    interface: Interface,
    first: Interface,
    empty: int,
) -> Finding:
    card = interface.card or 0
    found = f"a second EFA interface on card {card}, beside interface {first.index}, and card "
    found += f"{empty} has none"
    path = (*interface.path, "NetworkCardIndex")
    remedy = f"write NetworkCardIndex: {empty}"
    others = {each.device for each in interfaces if each.card not in {0, interface.card}}
    if len(others) == 1 and interface.device not in others:
        remedy += f", and DeviceIndex: {others.pop()}"
    return template.resource.find(Code.EFA_INTERFACES, path, found, remedy)


def _unknown_types(template: LaunchTemplate, interfaces: list[Interface]) -> Iterator[Finding]:
    for interface in interfaces:
        if interface.type is not None and interface.type not in _TYPES:
            yield template.resource.find(
                Code.EFA_INTERFACES,
                (*interface.path, "InterfaceType"),
                f"unknown interface type {shown(interface.type)}",
                "use interface, efa or efa-only",
            )


def _slots(template: LaunchTemplate, interfaces: list[Interface]) -> Iterator[Finding]:
    """Check what EC2 demands of any instance type: distinct places, and a primary interface."""

    def found(path: Path, said: str, remedy: str) -> Finding:
        return template.resource.find(Code.EFA_INTERFACES, path, said, remedy)

    taken: dict[tuple[int | None, int], Interface] = {}
    for interface in interfaces:
        if is_absent(interface.body.get("DeviceIndex")):
            yield found(interface.path, "an interface without DeviceIndex", "number it on its card")
        elif interface.device is not None and interface.card is not None:
            slot = (interface.card, interface.device)
            if slot in taken:
                said = f"card {slot[0]} device {slot[1]} is taken by interface {taken[slot].index}"
                yield found(interface.path, said, "give every interface a place of its own")
            taken.setdefault(slot, interface)
    if not interfaces or not _all_known(interfaces):
        return
    primary = taken.get(_PRIMARY)
    if primary is None:
        said = "no primary interface: card 0 device 0 is empty"
        yield found((DATA, INTERFACES), said, "add an interface of type interface there")
    elif primary.type == "efa-only":
        said = "the primary interface is efa-only, which takes no IP address"
        remedy = "use type interface there, and efa-only at device 1"
        yield found((*primary.path, "InterfaceType"), said, remedy)


def _all_known(interfaces: list[Interface]) -> bool:
    return all(
        interface.card is not None and interface.device is not None and interface.type is not None
        for interface in interfaces
    )


def _against_catalogue(
    template: LaunchTemplate, interfaces: list[Interface], instance: InstanceType, *, meant: bool
) -> Iterator[Finding]:
    actual = by_card(interfaces)
    expected = {card: recommended(card, instance) for card in range(instance.network_cards)}
    if not template.has_efa:
        yield from _without_efa(template, instance, meant=meant)
        return
    if not instance.efa_interfaces:
        first = next(each for each in interfaces if each.is_efa)
        found = f"{instance.name} has no EFA: EC2 refuses the launch"
        remedy = "use type interface, or a size that has EFA"
        path = (*first.path, "InterfaceType")
        yield template.resource.find(Code.EFA_INTERFACES, path, found, remedy)
        return
    if actual == {0: frozenset({(0, "efa")})} and instance.network_cards == 1:
        return  # One card has nothing to gain from a second interface.
    if is_former_layout(actual, instance):
        return  # It works as well, for an address more on some cards.
    former = former_rest(actual, instance)
    if former is not None:
        expected = former_cards(actual, range(instance.network_cards), former)
    empty = [str(card) for card in expected if expected[card] and card not in actual]
    if empty:
        remedy = f"give each of its {instance.efa_interfaces} EFA cards its interface"
        if set(actual) == {0} and len(interfaces) == len(expected):
            remedy = f"write NetworkCardIndex 0 to {max(expected)}, one on each: they are on card 0"
        yield template.resource.find(
            Code.EFA_INTERFACES,
            (DATA, INTERFACES),
            f"no interface on card {', '.join(empty)} of {instance.name}",
            remedy,
        )
    yield from _differences(template, interfaces, instance, expected, former=former)


def _differences(
    template: LaunchTemplate,
    interfaces: list[Interface],
    instance: InstanceType,
    expected: dict[int, Slots],
    *,
    former: Slots | None,
) -> Iterator[Finding]:
    """Report once what is wrong on several cards alike: one wrong type, or one wrong word."""
    actual = by_card(interfaces)
    differing: dict[tuple[Slots, Slots | None], list[Interface]] = {}
    for interface in interfaces:
        card = interface.card or 0
        # EFA with IP on the first card is what the older layout has there, and legal.
        older = card == 0 == instance.first_efa_card and actual.get(card) == FORMER_FIRST
        # Where the first card takes none, the others have either device index (p6-b300).
        older = older or bool(
            instance.first_efa_card and card and actual.get(card) == frozenset({(1, "efa-only")})
        )
        if card in actual and actual[card] != expected.get(card) and not older:
            differing.setdefault((actual.pop(card), expected.get(card)), []).append(interface)
    for (given, wanted), firsts in differing.items():
        difference = _cards_differ(template, firsts, given, wanted, instance)
        if former is not None and wanted is not None:
            remedy = f"beside the other cards it needs {slots_written(wanted)}"
            difference = replace(difference, remedy=remedy)
        yield difference


def _cards_differ(
    template: LaunchTemplate,
    firsts: list[Interface],
    actual: Slots,
    expected: Slots | None,
    instance: InstanceType,
) -> Finding:
    """Report cards that have the same, at the first of them."""
    cards = [each.card or 0 for each in firsts]
    several, path = len(cards) > 1, firsts[0].path
    if expected is None:
        found = f"{cards_written(cards)} {'do' if several else 'does'} not exist: {instance.name} "
        found += f"has {instance.network_cards} cards"
        meant = _types_with(max(cards) + 1) if several else ""
        remedy = f"remove these interfaces{meant}" if several else "remove the interface"
        return template.resource.find(Code.EFA_INTERFACES, path, found, remedy)
    # A second address for IP traffic, or one on the EFA interface, is a documented choice.
    extra = actual > expected and all(type_ == "interface" for _, type_ in actual - expected)
    extra = extra or {(slot, f"{type_}-only") for slot, type_ in actual} == expected
    extra = extra or bool(instance.first_efa_card and expected and actual == {(1, "efa")})
    each = " each" if several else ""
    have = "have" if several else "has"
    return template.resource.find(
        Code.EFA_INTERFACES,
        path,
        f"{cards_written(cards)} of {instance.name} {have} {slots_written(actual)}{each}",
        advice(actual, expected),
        Level.WARNING if extra else Level.ERROR,
    )


def _types_with(cards: int) -> str:
    """Name the instance types that have so many cards, for whoever meant one of them."""
    names = [name for name, each in INSTANCES.items() if each.network_cards == cards]
    return f", or name a type with {cards} cards: {', '.join(names)}" if names else ""


def _meant_for_efa(template: LaunchTemplate, templates: TemplateSet) -> bool:
    """Tell whether nodes are placed close together, or have a group that is called after EFA."""
    placement = mapping(template.data.get("Placement")) or {}
    if any(not is_absent(placement.get(key)) for key in ("GroupName", "GroupId")):
        return True
    listed = [template.data.get("SecurityGroupIds")]
    listed += [each.body.get("Groups") for each in template.interfaces or []]
    for group in [group for each in listed for group in items(each) or []]:
        target = templates.target(group, template.resource.file)
        if target is not None and target.type == "AWS::EC2::SecurityGroup":
            said = [text(target.properties.get(key)) for key in ("GroupName", "GroupDescription")]
            if any(_SAYS_EFA.search(each or "") for each in (target.id, *said)):
                return True
    return False


def _without_efa(
    template: LaunchTemplate, instance: InstanceType, *, meant: bool
) -> Iterator[Finding]:
    """Judge only templates of node groups, for types whose buyer wants EFA, or where others do."""
    bought = _BOUGHT_FOR_EFA.match(instance.name) is not None
    if instance.efa_interfaces and template.node_groups and (bought or meant):
        yield template.resource.find(
            Code.EFA_INTERFACES,
            (DATA, INTERFACES),
            f"none of the {instance.efa_interfaces} EFA interfaces of {instance.name} is attached, "
            "so traffic between nodes falls back to TCP",
            "attach an efa-only interface to every card",
            Level.ERROR if bought else Level.WARNING,
        )
