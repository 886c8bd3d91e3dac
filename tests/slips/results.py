"""Who noticed which slips, as a table with a row for each stack and chart."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from tests.slips.population import Slip

SURVIVORS = Path(__file__).with_name("survivors.yaml")


class Noticed(StrEnum):
    """Who notices a slip."""

    GUARDS = "guards"
    """The guards; whether a tool does too was not asked."""
    GUARDS_ALONE = "guards alone"
    BOTH = "both"
    TOOLS_ALONE = "tools alone"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Results:
    """Who notices each slip that was tried."""

    by_slip: Sequence[tuple[Slip, Noticed]]

    @property
    def columns(self) -> Sequence[Noticed]:
        """The answers that there are; whether tools were asked too decides between two kinds."""
        given = {who for _, who in self.by_slip} | {Noticed.TOOLS_ALONE, Noticed.NOBODY}
        return [each for each in Noticed if each in given]

    @property
    def survivors(self) -> list[Slip]:
        """What nobody notices."""
        return [slip for slip, who in self.by_slip if who is Noticed.NOBODY]

    def table(self) -> str:
        """Return the table as Markdown."""
        counted: dict[str, Counter[Noticed]] = {}
        for slip, who in self.by_slip:
            counted.setdefault(slip.row, Counter())[who] += 1
        rows = sorted(counted.items())
        total = Counter(who for _, who in self.by_slip)
        head = ["stack or chart", "slips", *map(str, self.columns), "noticed"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)]]
        lines += [self._cells(row, count) for row, count in (*rows, ("all", total))]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

    def without_reason(self) -> list[str]:
        """Return what nobody notices, unless survivors.yaml says why that may be."""
        groups = yaml.safe_load(SURVIVORS.read_text())
        known = {slip for group in groups for slip in group["slips"]}
        return [str(e) for e in self.survivors if not known & {str(e), e.kind}]

    def _cells(self, row: str, count: Counter[Noticed]) -> list[str]:
        slips = count.total()
        share = 100 * (slips - count[Noticed.NOBODY]) / slips if slips else 100
        numbers = [slips, *(count[each] for each in self.columns)]
        return [row, *(f"{number:,}" for number in numbers), f"{share:.1f} %"]
