"""Tables of claims within README and the pages of docs/, made from the published set.

A block begins with <!-- claims: SELECTION --> and ends with <!-- end -->; the selection is that of
`weft claims`, or `readme`.  A test fails if a block differs from what the set gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from weft.experiments.report.claims import Claim, Verdict, all_claims, outcome, texts
from weft.experiments.report.published import PublishedSet
from weft.experiments.report.reproduction import select

ROOT = Path(__file__).resolve().parents[2]
README = "readme"
BLOCK = re.compile(r"(<!-- claims: ([^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = "| claim | place | paper | ours | verdict | command |\n|---|---|---|---|---|---|\n"


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages with blocks."""
    paths = [root / "README.md", *sorted(root.glob("docs/*.md"))]
    return [path for path in paths if BLOCK.search(path.read_text(encoding="utf-8"))]


def write(published: PublishedSet, root: Path = ROOT) -> list[Path]:
    """Write all blocks anew; return the pages that changed."""
    changed = []
    for path in pages(root):
        before = path.read_text(encoding="utf-8")
        after = with_blocks(before, published)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def with_blocks(page: str, published: PublishedSet) -> str:
    """Return `page` with the tables that `published` gives."""
    return BLOCK.sub(lambda match: match[1] + block(match[2], published) + match[3], page)


def block(selection: str, published: PublishedSet) -> str:
    """Return the table of the selected claims, and the reasons of those that do not agree."""
    if selection == README:
        claims = {name: claim for name, claim in all_claims().items() if claim.in_readme}
    else:
        claims = select(selection.split(), runs=False).claims
    lines = [line(name, claim, published) for name, claim in claims.items()]
    reasons = "" if selection == README else "".join(reasons_of(claims, published))
    return "\n" + HEAD + "".join(lines) + "\n" + reasons


def line(name: str, claim: Claim, published: PublishedSet) -> str:
    """Return the row of a claim."""
    _, *cells = texts(name, outcome(claim, published.rows))
    command = f"`weft reproduce {name}`" if claim.query else ""
    return "| " + " | ".join([*cells, command]) + " |\n"


def reasons_of(claims: dict[str, Claim], published: PublishedSet) -> Iterator[str]:
    """Yield an item for each reason, with the claims that it is about."""
    names: dict[str, list[str]] = {}
    for name, claim in claims.items():
        if claim.why and outcome(claim, published.rows).verdict is not Verdict.AGREES:
            names.setdefault(claim.why, []).append(name)
    for why, own in names.items():
        yield f"* {', '.join(own)}: {why}\n"
    if names:
        yield "\n"
