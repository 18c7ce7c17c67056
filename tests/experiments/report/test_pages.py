"""Numbers on README and the papers' pages come from the published set.

A number in the text of a page stands in a table of claims of the paper, or in a table of rows on
the page.  Commands, headings, citations and names such as D3,4 are no numbers.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
import quick

from weft.experiments.report import pages, published
from weft.experiments.report.claims import all_claims
from weft.experiments.report.claims import claims_of as claims_of_paper
from weft.experiments.report.published import FOLDER, PublishedSet
from weft.experiments.report.reproduction import select

PAPERS = {  # of pages
    "ccrdn": "ccrdn",
    "proxy": "ccrdn",
    "ttc": "ttc",
    "lbsp": "lbsp",
    "fatpaths": "fatpaths",
    "dar": "dar",
    "hardware": "hardware",
}
NUMBER = re.compile(r"(?<![\w.,/{-])\d[\d.,]*(?: ?%)?")
NOT_TEXT = re.compile(
    r"```.*?```|<!--.*?-->|^ {4}[^\n]*"  # code, comments
    r"|^#[^\n]*|^Paper: .*?\n\n"  # headings, citation
    r"|(?P<code>`[^`]*`)|\]\([^)]*\)"  # code, addresses
    r"|(?:figure|table|section|equation|theorem|appendix|listing|layer)s? "
    r"[(]?[0-9IVX]+[0-9.)-]*[a-z]?(?:(?:, | and | to )[(]?[0-9][0-9.)]*[a-z]?)*",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, each with its %."""
    return [found.rstrip(".,").replace(" ", "") for found in NUMBER.findall(text)]


def tables(page: str) -> str:
    """Return the lines of the tables in generated blocks, and their settings."""
    blocks = [match[0] for match in pages.BLOCK.finditer(page)]
    lines = [line for block in blocks for line in block.splitlines()]
    return "\n".join(line for line in lines if line.startswith(("|", "<!--")))


def shorter(number: str) -> str:
    """Return a number with one decimal less, rounded."""
    if not re.fullmatch(r"\d+\.\d+%?", number):
        return number
    value, percent = number.rstrip("%"), "%" * number.endswith("%")
    return f"{float(value):.{len(value.partition('.')[2]) - 1}f}{percent}"


def unsourced_numbers(page: str, known: str) -> list[str]:
    """Return the numbers of the text of `page` that are in none of its tables nor in `known`.

    A text may have a number of a table with one decimal less.
    """
    listed = numbers(known.replace("|", " ")) + numbers(tables(page).replace("|", " "))
    sourced = {*listed, *map(shorter, listed)}
    blocks = pages.BLOCK.finditer(page)
    reasons = [line for b in blocks for line in b[0].splitlines() if line.startswith("* ")]
    text = "\n".join([pages.BLOCK.sub("", page), *(line.partition(":")[2] for line in reasons)])
    return [number for number in numbers(NOT_TEXT.sub(lone_number, text)) if number not in sourced]


def lone_number(match: re.Match[str]) -> str:
    """Return code that is a number alone, which is a result like any other; else nothing."""
    code = match["code"] or ""
    return " " if re.search("[A-Za-z_]", code) else code


def claims_of(paper: str) -> str:
    """Return the tables of a paper's claims."""
    return tables(
        pages.with_blocks(f"<!-- claims: {paper} -->\n<!-- end -->", PublishedSet(FOLDER))
    )


def page_of(name: str) -> str:
    return (pages.ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAPERS)
def test_numbers_of_the_papers_pages_are_of_the_set(page):
    assert unsourced_numbers(page_of(f"docs/{page}.md"), claims_of(PAPERS[page])) == []


def test_every_claim_stands_once_on_the_page_of_its_paper():
    for paper in set(PAPERS.values()):
        blocks = list(pages.BLOCK.finditer(page_of(f"docs/{paper}.md")))
        shown = Counter(
            name
            for match in blocks
            if match[2] == "claims"
            for name in select(match[3].split(), runs=False).claims
        )
        assert shown == Counter(dict.fromkeys(claims_of_paper(paper), 1))


def test_no_other_page_has_claims_but_readme_and_the_list_of_all():
    others = {
        (path.name, match[2])
        for path in pages.pages()
        for match in pages.BLOCK.finditer(path.read_text(encoding="utf-8"))
        if path.stem not in PAPERS.values() and match[2] in ("claims", "index")
    }
    assert others == {("README.md", "claims"), ("claims.md", "index")}


def test_lines_are_in_order_of_the_numbers_in_their_names():
    rows = [{"topology": f"clos:n={n},r={n}", "p": p} for n in (12, 2, 24) for p in (0.5, 0.25)]
    values = pages.values_of(rows, ["topology", "p"])
    assert [(name.split(",")[0][7:], p) for name, p in values] == [
        *(("2", 0.25), ("2", 0.5), ("12", 0.25), ("12", 0.5), ("24", 0.25), ("24", 0.5)),
    ]


def test_a_column_that_no_row_has_is_refused():
    rows = "rows: ndp_failover | routing, transprot | long_mean_ms | topology=slimfly:q=7,p=6"
    with pytest.raises(ValueError, match="ndp_failover: no row has transprot"):
        pages.with_blocks(f"<!-- {rows} -->\n<!-- end -->", PublishedSet(FOLDER))


def test_a_table_without_rows_is_refused():
    rows = "rows: collectives | topology | hosts | ranks=3"
    with pytest.raises(ValueError, match="no published row of collectives has ranks=3"):
        pages.with_blocks(f"<!-- {rows} -->\n<!-- end -->", PublishedSet(FOLDER))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [([1, 1], "One seed."), ([10], "Means of 10 seeds."), ([3, 1], "Means of 1 to 3 seeds.")],
)
def test_a_table_says_how_many_seeds_it_has(sizes, text):
    assert pages.seeds_of([[{}] * size for size in sizes]) == text


def test_a_table_of_some_seeds_refuses_cells_of_fewer():
    assert pages.seeds_of([[{}] * 3] * 2, 3) == "Means of 3 seeds."
    for sizes in ([2, 2], [3, 2]):
        with pytest.raises(ValueError, match="seeds=3, but cells have 2"):
            pages.seeds_of([[{}] * size for size in sizes], 3)


RANDOM = "traffic=uniform load_fraction=0.4 seconds=0.01 topology=slimfly:q=5,p=4"
SIDES = "scheme=ecmp transport=ndp; scheme=drill transport=ndp"


def block(text):
    return pages.with_blocks(f"<!-- {text} -->\n<!-- end -->", PublishedSet(FOLDER))


def test_ratios_are_of_runs_of_one_seed():
    """Most pairs of a Slim Fly's routers have one shortest path."""
    text = f"{RANDOM} failed_fraction=0.0 seeds=3"
    table = block(f"ratios: fabrics | topology | p99_ms | {SIDES} | {text}")
    assert "| topology | drill / ecmp |" in table
    assert "| `slimfly:q=5,p=4` | 1.00 (1.00 to 1.00) |" in table
    assert table.endswith("95 % intervals. Means of 3 seeds.\n\n<!-- end -->")


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ({"scheme": "ugal", "transport": "ndp"}, "ugal / ecmp"),
        ({"scheme": "ecmp", "transport": "tcp"}, "tcp / ndp"),
        ({"scheme": "ugal", "transport": "tcp"}, "ugal, tcp / ecmp, ndp"),
        ({"scheme": "ugal", "frame_bytes": "9000"}, "ugal, 9000 / ecmp, ndp"),
    ],
)
def test_a_ratio_is_named_by_what_differs(side, words):
    assert pages.ratio_name(side, {"scheme": "ecmp", "transport": "ndp"}) == words


def test_ratios_of_several_settings_are_not_mixed():
    with pytest.raises(ValueError, match="a cell has rows of several failed_fraction"):
        block(f"ratios: fabrics | topology | p99_ms | {SIDES} | {RANDOM}")


def test_a_ratio_is_that_of_times_of_flows_that_ended():
    sides = [({"mean_ms": a, "unfinished": 0}, {"mean_ms": 2 * a, "unfinished": 0}) for a in (1, 3)]
    assert pages.ratio_cell(sides, "mean_ms") == "2.00 (2.00 to 2.00)"
    assert pages.ratio_cell(sides[:1], "mean_ms") == "2.00"
    assert pages.ratio_cell([*sides, ({"unfinished": 1}, {})], "mean_ms") == pages.UNFINISHED
    assert pages.ratio_cell([], "mean_ms") == ""


def test_a_rate_is_in_mbit_a_second():
    assert pages.title("slowest_flow_bps", ()) == "slowest flow (Mbit/s)"
    assert pages.cell([{"slowest_flow_bps": 935_987_200}], "slowest_flow_bps") == "936"


def test_a_table_of_several_columns_by_a_key_names_each():
    one, two = [(("graph",), "late_packets")], [(("graph",), "hosts")]
    assert pages.titles(["scheme"], one) == ["scheme", "graph"]
    several = ["graph, late (packets)", "graph, hosts"]
    assert pages.titles([], one + two) == several


def test_a_time_over_flows_that_did_not_all_end_is_no_number():
    ended, cut = {"mean_ms": 3.0, "unfinished": 0}, {"mean_ms": 200.0, "unfinished": 2}
    assert pages.cell([ended, ended], "mean_ms") == "3"
    assert pages.cell([ended, cut], "mean_ms") == pages.UNFINISHED
    assert pages.cell([ended, cut], "unfinished") != pages.UNFINISHED
    cut |= {"long_ended_mean_ms": 4.0, "long_median_ms": 5.0}
    assert pages.cell([cut], "long_ended_mean_ms") == "4"
    assert pages.cell([cut], "long_median_ms") == "5"


def test_a_table_of_claims_has_rules_settings_reasons_and_quotes():
    shown = pages.with_blocks(
        "<!-- claims: ccrdn-7 ccrdn-2 -->\n<!-- end -->", PublishedSet(FOLDER)
    )
    contradicted, agreed = (all_claims()[name] for name in ("ccrdn-7", "ccrdn-2"))
    assert "| 15.2 to 16.8 % |" in shown
    assert f"{agreed.statement.setting}; ours: {agreed.ours} |" in shown
    assert f"* ccrdn-7: {contradicted.why_less}\n" in shown
    assert f"> **ccrdn-2**, section 1 (up to): “{agreed.statement.quote}”\n" in shown


def test_a_size_that_the_claim_above_has_stands_once():
    lines = [("a", "x"), ("b", "x"), ("c", ""), ("d", ""), ("e", "x"), ("f", "y"), ("g", "x")]
    shown = ["x", pages.AS_ABOVE, "", "", "x", "y", "x"]
    assert [line[-1] for line in pages.ditto(lines)] == shown
    assert [line[0] for line in pages.ditto(lines)] == list("abcdefg")


def test_claims_that_follow_each_other_are_named_as_a_span():
    names = [f"dar-{number}" for number in (3, 5, 6, 9, 10, 11, 12, 1)]
    assert pages.spans(names) == "dar-3, dar-5, dar-6, dar-9 to dar-12, dar-1"


def test_numbers_of_readme_are_of_the_set():
    section = page_of("README.md").partition("## What comes out")[2].partition("\n## ")[0]
    assert unsourced_numbers(section, "") == []


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("It has 16 % on figure 3, by `k=4`.", []),
        ("It has 17 % on figure 3.", ["17%"]),
        ("It has 15.5, or 15.", ["15"]),
        ("It has 16 on D3,4.", ["16"]),
        ("| a | 12.9 |\n", ["12.9"]),
        ("`12.9` packets", ["12.9"]),
        ("    $ weft run x --seeds 3\n\n## Section 9\n", []),
    ],
)
def test_a_number_that_is_not_of_the_set_is_seen(text, seen):
    assert unsourced_numbers(text, "| shortens by | 16 % | 15.46 ± 0.04 % |") == seen


def test_a_reason_holds_no_result():
    block = "<!-- claims: x -->\n| a | 3 % |\n\n* ttc-4: It is 3 % there, 4 % here.\n<!-- end -->\n"
    assert unsourced_numbers(block, "") == ["4%"]


def test_a_chosen_figure_of_speed_is_one_that_there_is_once():
    table = pages.chosen_figures("bringing_networks_up: FiConn_{2,10}, 1,056 nodes: up")
    line = r"\| FiConn_\{2,10\}, 1,056 nodes: up \| [\d.]+ s \| Bringing networks up \|"
    assert re.search(line, table)
    for choice, count in (("packets that arrived / sent", 4), ("no such figure", 0)):
        with pytest.raises(ValueError, match=f"has {count} figures"):
            pages.chosen_figures(f"a_hop_of_rewritten_packets: {choice}")


def test_writing_the_pages_changes_those_that_are_not_of_the_set(tmp_path):
    claims_page = "<!-- claims: ccrdn-7 -->\n<!-- end -->\n"
    texts = {"README.md": "No block.\n", "docs/a.md": claims_page, "docs/deep/b.md": claims_page}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    changed = [tmp_path / "docs/a.md", tmp_path / "docs/deep/b.md"]
    assert pages.write(PublishedSet(FOLDER), tmp_path) == changed
    assert all("| ccrdn-7 |" in path.read_text(encoding="utf-8") for path in changed)
    assert pages.write(PublishedSet(FOLDER), tmp_path) == []
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == texts["README.md"]


def test_the_gallery_has_every_picture_of_the_papers():
    gallery = page_of("docs/gallery.md")
    for figure in published.page_figures():
        assert (pages.ROOT / "figures" / f"{figure.name}.png").exists()
        picture = f"](../figures/{figure.name}.png)"
        assert f"{picture}\n\n    $ weft reproduce {figure.experiment} " in gallery


@pytest.mark.parametrize("other", [{"engine": "kernel"}, {"clock": "virtual"}, {"scheme": "bfs"}])
def test_a_cell_of_rows_that_differ_in_more_than_their_seed_is_refused(other) -> None:
    row = {"scheme": "dr", "size": 1, "engine": "graph", "clock": "real", "seed": 0}
    rows = [row, {**row, "seed": 1}]
    assert pages.cells(quick.EXPERIMENT, rows, ["size"]) == {(1,): rows}
    (key,) = other
    with pytest.raises(ValueError, match=f"a cell has rows of several {key}"):
        pages.cells(quick.EXPERIMENT, [*rows, row | other], ["size"])
    assert len(pages.cells(quick.EXPERIMENT, [*rows, row | other], ["size", key])) == 2
