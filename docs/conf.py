"""Sphinx configuration."""

import sb3_budget

project = "sb3_budget"
author = "The sb3_budget authors"
copyright = f"2026, {author}"
version = release = sb3_budget.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

autodoc_typehints = "signature"
autodoc_member_order = "bysource"

exclude_patterns = ["_build", "results"]
html_theme = "sphinx_rtd_theme"
html_theme_options = {"navigation_depth": 3}
