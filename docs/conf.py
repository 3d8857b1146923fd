"""Settings of the site; `make docs` builds it."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import contrastive_lvm

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from command_reference import write_command_reference  # noqa: E402
from names import write_name_lists  # noqa: E402
from result_pages import describe_results  # noqa: E402
from tutorial_data import pages_without_data  # noqa: E402

project = "contrastive-lvm"
author = "the contrastive-lvm developers"
copyright = f"2026, {author}"
version = release = contrastive_lvm.__version__

extensions = [
    "mathml",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["reproduced", "auto_gallery/*.ipynb", "**sg_execution_times.rst"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # shell commands in notebooks
nitpicky = False

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "auto"
nb_execution_excludepatterns = pages_without_data(HERE / "tutorials")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autosummary_generate = True
autodoc_typehints = "none"
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseEstimator,Estimator,tuple,object",
}
default_role = "code"
smartquotes = False
html_math_renderer = "mathml"
templates_path = ["_templates"]
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "show_memory": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "contrastive-lvm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Write the generated pages before the others are read."""
    write_command_reference(HERE / "reference" / "commands.md")
    write_name_lists(HERE / "reference")
    app.connect("autodoc-skip-member", _skip_members_of_others)
    app.connect("autodoc-process-docstring", describe_results, priority=100)  # before numpydoc


def _skip_members_of_others(*event: object) -> bool | None:
    """Leave out methods that scikit-learn adds to every estimator; its own pages have them."""
    name, member = str(event[2]), event[3]
    theirs = str(getattr(member, "__module__", "")).startswith("sklearn")
    return True if theirs or (name.startswith("set_") and name.endswith("_request")) else None
