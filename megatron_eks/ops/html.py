"""Pages of HTML from typed parts: all text is escaped, only what is made here is markup."""

import html
from collections.abc import Iterable, Sequence

from megatron_eks.ops.support.text import without_secrets
from megatron_eks.programs.printable import plain

# Even a slip in escaping loads nothing and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Html(str):
    """Markup."""

    __slots__ = ()


Part = Html | str | None


def tag(name: str, *parts: Part, **attributes: str | float) -> Html:
    """Return an element; a `_` in an attribute's name is a hyphen, and one at its end nothing."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{joined(parts)}</{name}>")


def joined(parts: Iterable[Part]) -> Html:
    """Return parts one after the other, text among them escaped."""
    return Html("".join(part if isinstance(part, Html) else text(part) for part in parts if part))


def text(words: str) -> Html:
    """Escape what others wrote, without secrets and signs that nobody sees."""
    lines = (plain(without_secrets(line)) for line in words.split("\n"))
    return Html(html.escape("\n".join(lines)))


def table(header: Sequence[str], rows: Iterable[Sequence[Part]], numbers: str = "") -> Html:
    """Return a table that scrolls in a narrow window; `numbers` holds the digits of columns."""

    def row(kind: str, cells: Sequence[Part]) -> Html:
        aligned = ("number" if str(column) in numbers else "text" for column in range(len(cells)))
        return tag("tr", *(tag(kind, cell, class_=of) for cell, of in zip(cells, aligned)))  # noqa: B905 -- of one length

    body = tag("tbody", *(row("td", cells) for cells in rows))
    return tag("div", tag("table", tag("thead", row("th", header)), body), class_="scroll")


def page(title: str, style: str, *parts: Part) -> str:
    """Return a whole page, which is one file and needs no network."""
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", title),
        tag("style", Html(style)),
    )
    return f'<!doctype html>\n<html lang="en">{head}{tag("body", *parts)}</html>\n'
