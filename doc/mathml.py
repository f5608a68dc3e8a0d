"""Formulas as MathML, which browsers draw by themselves: nothing is downloaded."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def visit_math(self, node):
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_math_block(self, node):
    formula = tex2mathml(node.astext(), as_block=True)
    self.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app):
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(visit_math, None),
        block_renderers=(visit_math_block, None),
    )
    return {"parallel_read_safe": True}
