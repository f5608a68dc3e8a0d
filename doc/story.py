"""Draw the picture of the README's story, by running it: ``python doc/story.py``."""

import doctest
import re
import textwrap
from html import unescape
from pathlib import Path

import matplotlib.pyplot as plt

from skprivbn.inspection import DAGDisplay

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "doc" / "_static" / "story.png"
COLOURS = {"north": "#56B4E9", "south": "#E69F00", "west": "#009E73"}


def run_story():
    """Run the first snippet of the README; return its variables."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    snippet = text.partition("```python\n")[2].partition("```")[0]
    names = {}
    for example in doctest.DocTestParser().get_examples(snippet):
        exec(compile(example.source, "README.md", "single"), names)
    return names


def draw():
    """Draw files, network and report next to each other."""
    names = run_story()
    fig = plt.figure(figsize=(11, 4.6), dpi=200, facecolor="white")
    for x, title in [
        (0.15, "Three files"),
        (0.48, "One network"),
        (0.82, "One report"),
    ]:
        fig.text(x, 0.94, title, ha="center", fontsize=12, weight="bold")
    for place, (name, colour) in enumerate(COLOURS.items()):
        path = ROOT / "examples" / "hospitals" / f"{name}.csv"
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        gaps = [line for line in lines if re.search(r",,|-9|unknown", line)]
        lines = [head, *lines[:2], *gaps[:2]]
        cut = [line if len(line) <= 37 else line[:36] + "…" for line in lines]
        top = 0.87 - 0.30 * place
        fig.text(0.015, top, path.name, color=colour, weight="bold", fontsize=9)
        box = {"facecolor": "#f7f7f7", "edgecolor": colour, "boxstyle": "square,pad=.4"}
        words = "\n".join([*cut, f"… {len(names['tables'][name])} rows"])
        fig.text(0.02, top - 0.03, words, family="monospace", va="top", fontsize=7.2)
        fig.texts[-1].set_bbox(box)
    DAGDisplay.from_estimator(names["model"], ax=fig.add_axes([0.32, 0.03, 0.32, 0.86]))
    questions = re.findall(
        r"<h3>([^<]*\?)</h3>.*?<p>(.*?)</p>", names["page"], flags=re.S
    )
    top = 0.87
    for question, answer in questions:
        answer = unescape(re.sub(r"<[^>]+>", "", answer))
        lines = textwrap.wrap(answer, 58, max_lines=3, placeholder=" …")
        fig.text(0.67, top, unescape(question), fontsize=9, weight="bold", va="top")
        fig.text(0.67, top - 0.045, "\n".join(lines), fontsize=7.8, va="top")
        top -= 0.085 + 0.033 * len(lines)
    fig.savefig(TARGET)


if __name__ == "__main__":
    draw()
