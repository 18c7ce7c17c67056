"""The documentation as a site: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import reference_pages  # noqa: E402

from weft.experiments.view import simulation_page  # noqa: E402
from weft.testbed.machine.installation import version as version_of_weft  # noqa: E402

reference_pages.write(HERE / "reference")

project = "weft"
author = "The weft authors"
version = release = version_of_weft()
extensions = ["myst_parser", "sphinx_copybutton"]
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "weft"
html_static_path = ["_static"]
html_css_files = ["weft.css"]
html_js_files = ["access.js"]
html_copy_source = False
html_show_copyright = False  # LICENSE has it
html_show_sphinx = False
# Links to programs of the repository lead out of these pages.
suppress_warnings = ["myst.xref_missing"]


def link_to_the_site(app, name, source):
    """Let links of a page to SECURITY.md, the labs and others lead to their copies on the site."""
    if not name.startswith("reference/"):
        source[0] = reference_pages.on_site(source[0], f"docs/{name}.md")


def write_simulation(app, error):
    """Write the page of a simulation beside these pages; say so in one line if that cannot be."""
    folder = Path(app.outdir) / "simulation"
    try:
        simulation_page.write(folder)
    except OSError as reason:
        print(f"docs: the page of a simulation is left out: {reason}")
        simulation_page.write_absent(folder, str(reason))


def setup(app):
    app.connect("source-read", link_to_the_site)
    app.connect("build-finished", write_simulation)
