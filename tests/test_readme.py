"""What the README says of measurements is what was stored."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def headline(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "headline", raising=False)
    import headline

    return headline


def test_numbers_are_those_of_the_stored_results(headline):
    _, between, _ = headline.parts(headline.README.read_text(encoding="utf-8"))
    assert between == headline.table(), "run python benchmarks/headline.py"
    assert between.count("\n") > 3


def test_numbers_name_scripts_that_exist(headline):
    scripts = [
        line.rstrip(" |").rpartition("| `")[2].rstrip("`")
        for line in headline.table().splitlines()[2:]
    ]
    assert scripts
    assert all((ROOT / "benchmarks" / script).is_file() for script in scripts)


def test_files_that_the_readme_points_to_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert links
    assert all((ROOT / link).exists() for link in links if "://" not in link)


def test_story_has_fifteen_lines_and_a_picture():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    story, _, after = text.partition("```python\n")[2].partition("```")
    assert story.count(">>> ") + story.count("... ") <= 15
    assert after.lstrip().startswith("![")
    assert after.index("## Which estimator") < after.index("## Measured")


def test_installation_is_said_once_and_alike():
    command = 'python3 -m pip install ".[plot]"'
    pages = ["README.md", "doc/install.rst"]
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages}
    assert all(text.count(command) == 1 for text in texts.values())
    others = {"index", "quick_start", "user_guide", "partitions", "data", "coming_from"}
    for name in others:
        assert "pip install" not in (ROOT / f"doc/{name}.rst").read_text("utf-8")
