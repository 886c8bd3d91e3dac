"""What somebody may write into a log or a name to act on a terminal, and whether it would."""

import re

CORPUS = {
    "title": "\x1b]0;gone\x07",
    "title, ended by ST": "\x1b]2;gone\x1b\\",
    "link": "\x1b]8;;http://evil.example/\x1b\\here\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4K\x07",
    "clipboard, ended by ST": "\x1b]52;c;cm0gLXJmIH4K\x1b\\",
    "clipboard in C1": "\x9d52;c;cm0gLXJmIH4K\x9c",
    "picture": "\x1b]1337;File=inline=1:AAAA\x07",
    "reset": "\x1bc",
    "clear": "\x1b[2J\x1b[H",
    "clear in C1": "\x9b2J",
    "colour in C1": "\x9b31m",
    "cursor": "\x1b[1A\x1b[2K",
    "scroll region": "\x1b[3;5r",
    "report": "\x1b[6n\x1b[c\x1b[21t",
    "keys": "\x1b[>4;2m\x1b[?2004h\x1b=",
    "other screen": "\x1b[?1049h",
    "device control": "\x1bP+q544e\x1b\\",
    "device control in C1": "\x90+q544e\x9c",
    "application command": "\x1b_Gf=100;AAAA\x1b\\",
    "privacy message": "\x1b^gone\x1b\\",
    "start of string": "\x1bXgone\x1b\\",
    "other letters": "\x1b(0\x0e",
    "hidden text": "\x1b[8mgone",
    "hidden text among colours": "\x1b[1;38;5;2;08mgone",
    "overwritten": "error\rwhole",
    "taken back": "error\b\b\b\b\bwhole",
    "lines": "a\x0bb\x0cc\x85d\u2028e\u2029f",
    "bell, nul, delete": "\x07\x00\x7f",
    "bare escape": "\x1b",
    "cut off": "\x1b[",
    "override": "gpj.\u202egnp.exe\u202c",
    "isolate": "a\u2066b\u2069\u2067c\u2069",
    "marks": "a\u200eb\u200fc\u061cd",
    "unseen": "a\u200bb\u2060c\ufeffd\xade\u180ef\u3164",
    "joined": "iter_\u200d0000100\u200c",
    "tags": "a\U000e0041\U000e0042",
    "selectors": "a\ufe00\ufe01\U000e0101",
    "selectors behind a sign": "\u00e4\ufe00\ufe01\ufe02",
}
COLOURS = "\x1b[31mred\x1b[0m \x1b[1;38;5;208mbright\x1b[m \x1b[48;2;1;2;8mtrue\x1b[0m"
ALL = "".join(f"<{text}>" for text in CORPUS.values())

_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
_NUMBERED = re.compile(r"[345]8;(?:5;\d+|2;\d+;\d+;\d+)")
_SELECTOR = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\U000e0000-\U000e00ff]"
    rf"|[\x00-\x7f]{_SELECTOR}|{_SELECTOR}{_SELECTOR}"
    "|(?:^|[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?:[\x00-\x7f]|$)"
)


def acting(text: str) -> list[str]:
    """Return what a terminal would do more with than show it, or show it in colour."""
    hidden = [
        found[0]
        for found in _COLOUR.finditer(text)
        if 8 in map(int, filter(None, _NUMBERED.sub("", found[1]).split(";")))
    ]
    return [*hidden, *_ACTS.findall(_COLOUR.sub("", text.replace("\r\n", "\n")))]
