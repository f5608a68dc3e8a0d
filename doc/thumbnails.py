"""Thumbnails that can be read: the first panel of an example's first figure.

A figure with three panels, as small as a thumbnail, shows nothing. So the scraper also
keeps the first panel by itself, and when the gallery is made it takes the place of the
thumbnail. Examples say ``sphinx_gallery_thumbnail_number`` to choose another figure.
"""

import warnings
from pathlib import Path
from textwrap import indent

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper
from sphinx_gallery.utils import scale_image

PANELS = Path(__file__).parent / "_build" / "panels"
MARGIN = 0.08  # inches

# A figure is shown by the gallery itself. Processes that run examples load this module
# and not conf.py.
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")


def scrape(block, block_vars, gallery_conf):
    """Save figures as the gallery does, and the first panel of each by itself."""
    example = Path(block_vars["src_file"]).stem
    PANELS.mkdir(parents=True, exist_ok=True)
    first = len(block_vars["image_path_iterator"]) + 1
    for number, figure in enumerate(map(plt.figure, plt.get_fignums()), first):
        # colour bars and frames for text are axes, too, but nobody's first panel
        panels = [axes for axes in figure.axes if axes.has_data()]
        if not panels:
            continue
        figure.canvas.draw()
        figure.set_layout_engine("none")
        others = [*figure.legends, *figure.texts, *figure.axes]
        others.remove(panels[0])
        seen = {artist: artist.get_visible() for artist in others}
        plt.setp(others, visible=False)
        box = panels[0].get_tightbbox().transformed(figure.dpi_scale_trans.inverted())
        figure.savefig(
            PANELS / f"{example}_{number}.png",
            dpi=144,
            bbox_inches=box.padded(MARGIN),
        )
        for artist, visible in seen.items():
            artist.set_visible(visible)
    shown = matplotlib_scraper(block, block_vars, gallery_conf)
    # on a phone, panels side by side would be too small to read: a container scrolls
    return shown and ".. container:: figures\n\n" + indent(shown, "    ")


def replace_thumbnails(app):
    """Put panels into the place of thumbnails that the gallery has made."""
    size = app.config.sphinx_gallery_conf["thumbnail_size"]
    for thumbnail in Path(app.srcdir).glob("auto_examples/*/images/thumb/*_thumb.png"):
        example = thumbnail.stem.removeprefix("sphx_glr_").removesuffix("_thumb")
        source = next(Path(app.srcdir).parent.glob(f"examples/*/{example}.py"), None)
        text = source.read_text(encoding="utf-8") if source else ""
        number = text.partition("sphinx_gallery_thumbnail_number = ")[2].split("\n")[0]
        panel = PANELS / f"{example}_{number or 1}.png"
        if panel.exists():
            scale_image(str(panel), str(thumbnail), *size)


def setup(app):
    """Run after the gallery, which is made at the same event."""
    app.connect("builder-inited", replace_thumbnails, priority=900)
    return {"parallel_read_safe": True}
