"""Layouts of network interfaces on the cards of an instance, as EC2 and other tools make them."""

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.rules.launch_templates import EFA_TYPES, Interface

Slots = frozenset[tuple[int, str]]
"""The interfaces of one card: place on it, and type."""

FORMER_FIRST: Slots = frozenset({(0, "efa")})
"""The first card of the older layout."""
_FORMER: Slots = frozenset((device, type_) for device in (0, 1) for type_ in EFA_TYPES)
_EFA_ONLY: Slots = frozenset({(0, "efa-only")})
# Beside EFA on the first card each of the others may have either (EC2 User Guide until 2025, "EFA
# configuration for P5": efa on every fourth card for the most IP traffic).
_EITHER: Slots = frozenset((1, type_) for type_ in EFA_TYPES)
# Two cards in a row are named one by one.
_SHORT = 2
_STEPS = 4


def recommended(card: int, instance: InstanceType) -> Slots:
    """Return what EC2 recommends on a card."""
    # This repeats the plan on purpose: a rule judges the plan's work as well, so it counts itself.
    primary = {(0, "interface")} if card == 0 else set()
    efa = {(1 if card == 0 else 0, "efa-only")} if card >= instance.first_efa_card else set()
    return frozenset(primary | efa)


def is_former_layout(actual: dict[int, Slots], instance: InstanceType) -> bool:
    """Recognise what eksctl and Terraform modules make: EFA on the first, the rest alike.

    It needs EFA on card 0, which p6-b300 lacks. Of p4d's four cards each may have a device index
    of its own, as in the template of aws-samples/aws-efa-eks.
    """
    cards = range(instance.network_cards)
    own = {card: frozenset({(card, "efa")}) for card in cards}
    if actual == own and len(cards) <= _STEPS:
        return True
    rest = {actual.get(card) for card in cards[1:]}
    mixed = actual.get(0) == FORMER_FIRST and all(
        slots is not None and slots <= _EITHER for slots in rest
    )
    alike = (len(rest) <= 1 or mixed) and all(
        slots is not None and len(slots) == 1 and slots <= _FORMER for slots in rest
    )
    first = actual.get(0) in {FORMER_FIRST, recommended(0, instance)}
    return alike and first and set(actual) == set(cards) and instance.first_efa_card == 0


def former_rest(actual: dict[int, Slots], instance: InstanceType) -> Slots | None:
    """Return what most of the other cards have where the older layout has a fault; else None."""
    slots = [actual.get(card, frozenset()) for card in range(1, instance.network_cards)]
    known = [each for each in slots if len(each) == 1 and each <= _FORMER]
    most: Slots = max(known, key=slots.count, default=frozenset())
    kin = [each for each in slots if each == most or (_has_either(each) and _has_either(most))]
    alike = bool(most) and len(kin) * 2 > len(slots)
    first = actual.get(0, frozenset())
    # The first card may be the one with the fault; then all others tell the layout.
    clear = first == FORMER_FIRST or (
        len(first) == 1 and len(slots) > 1 and most != _EFA_ONLY and slots.count(most) == len(slots)
    )
    return most if alike and clear and instance.first_efa_card == 0 else None


def former_cards(actual: dict[int, Slots], cards: range, most: Slots) -> dict[int, Slots]:
    """Return the older layout of a type whose cards mostly have this.

    Where the others have either kind of EFA, a card that has one of them stays as it is.
    """
    wanted = {card: most if card else FORMER_FIRST for card in cards}
    for card in cards[1:] if _has_either(most) else ():
        own = actual.get(card, frozenset())
        if _has_either(own):
            wanted[card] = own
    return wanted


def _has_either(slots: Slots) -> bool:
    return len(slots) == 1 and slots <= _EITHER


def by_card(interfaces: list[Interface]) -> dict[int, Slots]:
    """Return what each card has."""
    cards: dict[int, set[tuple[int, str]]] = {}
    for interface in interfaces:
        cards.setdefault(interface.card or 0, set()).add(
            (interface.device or 0, interface.type or "")
        )
    return {card: frozenset(slots) for card, slots in cards.items()}


def misnumbered(
    interfaces: list[Interface], instance: InstanceType
) -> tuple[Interface, Interface, int] | None:
    """Return an interface on the card of another one, that one, and the card that has none.

    Only where one number is the whole fault: the cards are otherwise all taken, each once for EFA.
    """
    efa = [each for each in interfaces if each.is_efa]
    cards = range(instance.first_efa_card, instance.network_cards)
    empty = [card for card in cards if all(each.card != card for each in interfaces)]
    taken: dict[int | None, Interface] = {}
    pairs = []
    for each in efa:
        if each.card in taken:
            pairs.append((each, taken[each.card]))
        taken.setdefault(each.card, each)
    if len(pairs) != 1 or len(empty) != 1 or len(efa) != len(cards):
        return None
    return (*pairs[0], empty[0])


def slots_written(slots: Slots) -> str:
    """Write the interfaces of a card."""
    return ", ".join(f"device {device} {type_}" for device, type_ in sorted(slots)) or "none"


def advice(actual: Slots, expected: Slots) -> str:
    """Say what a card should have, and where it cannot have what it has."""
    none = not any(type_ in EFA_TYPES for _, type_ in expected)
    if none and any(type_ in EFA_TYPES for _, type_ in actual):
        return f"write {slots_written(expected)} alone: EC2 takes no EFA on this card"
    return f"EC2 recommends {slots_written(expected)}"


def cards_written(cards: list[int]) -> str:
    """Write cards as people count them: `cards 4 to 31`, `cards 2 and 5`, `card 3`."""
    ordered = sorted(cards)
    if len(ordered) == 1:
        return f"card {ordered[0]}"
    if ordered[-1] - ordered[0] == len(ordered) - 1 and len(ordered) > _SHORT:
        return f"cards {ordered[0]} to {ordered[-1]}"
    return f"cards {', '.join(str(each) for each in ordered[:-1])} and {ordered[-1]}"
