"""Pages are short sentences, and the product speaks of processes, nodes and users."""

import ast
import re
import tokenize
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("docs/**/*.md"),
        *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    )
    if not {"reference", "_build"} & set(path.parts)
)
MOST_WORDS, MOST_MEAN_WORDS = 35, 20
MOST_COLUMNS = 132
FEW = 10  # sentences: the mean of fewer says little
PERSONS = re.compile(r"\b(nobody|somebody|whoever|everybody|anybody|someone)\b", re.IGNORECASE)
USER_NOBODY = re.compile(r"user `?nobody`?|as nobody\b|\(nobody\)")
NOUN_FRAGMENT = re.compile(r"(What|Who|Whether|How)\b")
DOCSTRING_OF_A_FRAGMENT = re.compile(rf'"""\s*{NOUN_FRAGMENT.pattern}')
FOLDERS = ("topologies", "daemons", "testbed", "experiments", "bench", "examples", "weft")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; tables, headings, code and comments left out."""
    text = re.sub(r"```.*?```|<!--.*?-->|<picture>.*?</picture>", "", text, flags=re.DOTALL)
    text = re.sub(r"^(    |\t|\||#|!\[|>).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "Code", text))
    blocks = [
        " ".join(item.split())
        for block in re.split(r"\n\s*\n", text)
        for item in re.split(r"\n(?=\s*(?:[*-]|\d+\.) )", block)
    ]
    return [
        sentence
        for block in blocks
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z(*0-9])", block)
        if words(sentence) > 2
    ]


def words(sentence: str) -> int:
    return len(re.findall(r"[A-Za-z0-9_%+-]+", sentence))


def test_sentences_are_found():
    page = "# Title\n\nOne two three. `weft` two\nthree: four.\n\n    $ code\n\n* a b c\n* d e f\n"
    assert [words(sentence) for sentence in sentences(page)] == [3, 4, 3, 3]


@pytest.mark.parametrize("page", PAGES)
def test_sentences_of_pages_are_short(page):
    lengths = {
        sentence: words(sentence)
        for sentence in sentences((ROOT / page).read_text(encoding="utf-8"))
    }
    assert [sentence for sentence, length in lengths.items() if length > MOST_WORDS] == []
    assert len(lengths) < FEW or mean(lengths.values()) <= MOST_MEAN_WORDS


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_pages_fit(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    written = re.sub(r"```.*?```|<!-- claims.*?<!-- end", "", text, flags=re.DOTALL)
    lines = [line for line in written.splitlines() if not line.startswith(("|", "<!--", "    "))]
    # a line of one word cannot be broken
    assert [line for line in lines if len(line) > MOST_COLUMNS and " " in line.strip()] == []


def sources(*folders: str) -> dict[str, str]:
    """Return the Python files of `folders` by path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.is_symlink()
    }


def persons(source: str) -> list[str]:
    """Return lines of comments and texts that speak of a person where there is a process."""
    return [
        line
        for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__)
        if token.type in (tokenize.STRING, tokenize.COMMENT)
        for line in token.string.splitlines()
        if PERSONS.search(USER_NOBODY.sub("", line))
    ]


def test_persons_are_seen():
    assert persons('x = 1  # for nobody\n"""Whoever sends."""\n# user nobody\n') == [
        "# for nobody",
        '"""Whoever sends."""',
    ]


def test_the_product_speaks_of_processes_and_users():
    lines = {path: persons(source) for path, source in sources(*FOLDERS).items()}
    assert {path: said for path, said in lines.items() if said} == {}


def fragments(source: str) -> list[str]:
    """Return first lines of docstrings that begin with a question word, not with a verb or noun."""
    if not DOCSTRING_OF_A_FRAGMENT.search(source):  # parsing takes long
        return []
    return [
        docstring.splitlines()[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        if (docstring := ast.get_docstring(node)) and NOUN_FRAGMENT.match(docstring)
    ]


def test_fragments_are_seen():
    source = '"""Models."""\ndef is_up():\n    """Whether it is up."""\n\n\nA = """What else."""\n'
    assert fragments(source) == ["Whether it is up."]


def test_docstrings_begin_with_what_is_done():
    lines = {path: fragments(source) for path, source in sources(*FOLDERS, "docs", "tests").items()}
    assert {path: said for path, said in lines.items() if said} == {}
