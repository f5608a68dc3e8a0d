"""Sphinx configuration. The build needs no network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from sklearn_inventory import write_inventory  # noqa: E402

import skprivbn  # noqa: E402

project = "skprivbn"
author = "the skprivbn developers"
copyright = "the skprivbn developers"
release = version = skprivbn.__version__

extensions = [
    "fit_directive",
    "mathml",
    "matplotlib.sphinxext.plot_directive",
    "results_directive",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_gallery.gen_gallery",
    "thumbnails",
    "vocabulary",
]
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "literal"
plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = [("png", 144)]

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_typehints = "none"
# Names of methods without their class fit beside the page.
toc_object_entries_show_parents = "hide"
# Methods are shown by the class template; numpydoc would list them a second time.
numpydoc_show_class_members = False

# Links into scikit-learn's documentation without downloading its index.
intersphinx_mapping = {
    "sklearn": (
        "https://scikit-learn.org/stable/",
        str(write_inventory(HERE / "_build" / "sklearn.inv")),
    )
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"__init__\.py|demo\w*\.py",
    "plot_gallery": "True",
    "doc_module": ("skprivbn",),
    # Headline estimators are at the top as well; their pages are in their families.
    "prefer_full_module": {r"^skprivbn\."},
    "backreferences_dir": "api/generated/backreferences",
    "reference_url": {"skprivbn": None},
    "download_all_examples": False,
    "image_scrapers": ("thumbnails.scrape",),
    # twice the resolution for screens that have it: 200 dpi
    "image_srcset": ["2x"],
    "show_memory": False,
    "show_signature": False,
    # what a plot returns is no result
    "ignore_repr_types": r"matplotlib|Display",
    "abort_on_example_error": True,
    # as many examples at a time as pages: sphinx -j
    "parallel": True,
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "skprivbn"
html_static_path = ["_static"]
html_css_files = ["skprivbn.css"]
html_show_sourcelink = False
# Pages without pages below them need no navigation of their own.
html_sidebars = {
    page: [] for page in ("install", "quick_start", "threat_model", "security")
}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 7,
    # As a field, the search would take a second line of the header on a laptop.
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
