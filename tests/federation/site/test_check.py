"""What the people at a site are told of their data before anybody fits."""

import pytest

from skprivbn.exceptions import PartitionError
from skprivbn.federation.site._check import check_data
from skprivbn.federation.site._file import SiteFile

SITE_FILE = """
peers = ["south"]
[datasets.icu]
path = "stays.csv"
min_rows = 2
min_cell_count = 1
max_exact_fits = 1
estimators = ["FederatedStandardScaler"]
missing = ["NA"]
[datasets.icu.columns]
age = "float"
ward = ["surgery", "medicine"]
id = "key"
"""


def load(folder, text=SITE_FILE):
    (folder / "site.toml").write_text(text)
    return SiteFile.load(folder / "site.toml").datasets["icu"]


def check(folder, table):
    (folder / "stays.csv").write_text(table)
    problems, notes = check_data(load(folder))
    return "\n".join(problems), "\n".join(notes)


def test_data_as_declared_are_fine(tmp_path):
    assert check(tmp_path, "age,ward,id\n1.5,surgery,a\n2,medicine,b\n") == ("", "")


def test_the_first_bad_cell_of_each_column_is_named(tmp_path):
    rows = "1.5,surgery,a\nold,medicine,b\n2,Surgery,c\nolder,x,d\n"
    problems, notes = check(tmp_path, "age,ward,id\n" + rows)
    assert "stays.csv, line 3, column 'age': 'old' is not a number" in problems
    assert "line 4, column 'ward': 'Surgery' is not one of the cat" in problems
    assert problems.count("\n") == 1 and not notes


def test_rare_categories_are_noted(tmp_path):
    rows = [*["1,surgery,a"] * 6, *["1,medicine,b"] * 2]
    (tmp_path / "stays.csv").write_text("\n".join(["age,ward,id", *rows]) + "\n")
    text = SITE_FILE.replace("min_cell_count = 1", "min_cell_count = 3")
    problems, notes = check_data(load(tmp_path, text))
    assert not problems
    assert (
        "column 'ward': fewer than 3 rows (min_cell_count) are ['medicine']"
        in (notes[0])
    )


def test_missing_values_are_noted(tmp_path):
    rows = "1.5,surgery,a\nNA,medicine,\n,surgery,c\ninf,NA,d\n"
    problems, notes = check(tmp_path, "age,ward,id\n" + rows)
    assert not problems
    assert "column 'age': 3 of 4 values are missing or infinite, first in li" in notes
    assert "line 3" in notes
    assert "column 'ward': 1 of 4" in notes and "column 'id': 1 of 4" in notes


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("age,ward,id\n", "has no rows"),
        ("age,ward,id\n1,surgery,a\n", "1 rows, fewer than min_rows = 2"),
        ("age,ward\n1,surgery\n", "no column 'id'"),
        ("Age,ward,id\n1,surgery,a\n", "capital letters count"),
        ("age;ward;id\n1;surgery;a\n", 'Say csv = {separator = ";"}'),
        ('age,ward,id\n"1,5",surgery,a\n', 'say csv = {decimal = ","}'),
        ("age,ward,id\n1,Surgery ,a\n", "'medicine'] (spaces and capital"),
        ("age,ward,id\n1,surgery\n", "line 2: 2 cells, and there are 3 columns"),
    ],
)
def test_a_table_that_cannot_take_part_is_a_problem(tmp_path, table, message):
    assert message in check(tmp_path, table)[0]


def test_no_table_is_a_problem(tmp_path):
    (problem,), _ = check_data(load(tmp_path))
    assert f"there is no file {tmp_path / 'stays.csv'}; a path that does" in problem


@pytest.mark.parametrize("rule", ["", "max_exact_numbers = 0"])
def test_nothing_allowed_is_noted(tmp_path, rule):
    rows = "age,ward,id\n1.5,surgery,a\n2,medicine,b\n"
    (tmp_path / "stays.csv").write_text(rows)
    text = SITE_FILE.replace("max_exact_fits = 1", rule)
    assert "nothing may be asked" in check_data(load(tmp_path, text))[1][0]


@pytest.mark.parametrize("rule", ["-1", "true", '"many"'])
def test_numbers_told_must_be_a_number(tmp_path, rule):
    text = SITE_FILE.replace("max_exact_fits = 1", f"max_exact_numbers = {rule}")
    with pytest.raises(PartitionError, match="max_exact_numbers must be a number"):
        load(tmp_path, text)


def test_numbers_of_which_few_rows_have_one_are_noted(tmp_path):
    ages = [1] * 6 + [0] * 2
    rows = [f"{age},surgery,a" for age in ages]
    (tmp_path / "stays.csv").write_text("\n".join(["age,ward,id", *rows]) + "\n")
    text = SITE_FILE.replace("min_cell_count = 1", "min_cell_count = 3")
    (note,) = check_data(load(tmp_path, text))[1]
    assert "column 'age': fewer than 3 rows (min_cell_count) are [0.0]" in note


def test_files_as_windows_writes_them(tmp_path):
    table = "age,ward,id\r\n1.5,surgery,a\r\n2,medicine,b\r\n\r\n"
    (tmp_path / "stays.csv").write_bytes(b"\xef\xbb\xbf" + table.encode())
    text = SITE_FILE.replace("\n", "\r\n").encode()
    (tmp_path / "site.toml").write_bytes(b"\xef\xbb\xbf" + text)
    dataset = SiteFile.load(tmp_path / "site.toml").datasets["icu"]
    assert check_data(dataset) == ([], [])
    (tmp_path / "site.toml").write_bytes(SITE_FILE.encode("utf-16"))
    with pytest.raises(PartitionError, match="not text in UTF-8: save it so"):
        SiteFile.load(tmp_path / "site.toml")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('["FederatedStandardScaler"]', '"FederatedStandardScaler"', "list of names"),
        ('["NA"]', '"NA"', "missing must be a list"),
        ('["surgery", "medicine"]', '"surgery"', "list of different categories"),
        ('path = "stays.csv"', 'path = ["stays.csv"]', "path must be text"),
        ("min_rows = 2", 'individual = ["id"]', 'declared as "key"'),
        ("min_rows = 2", 'allow_rows = "yes"', "allow_rows must be true or false"),
        ("min_rows = 2", "budget = {epsilon = [1.0]}", "epsilon must be a number"),
        ("min_rows = 2", 'budget = {epsilon = "1.0"}', "epsilon must be a number"),
        ("min_rows = 2", "budget = {epsilon = -1}", "epsilon must be a number above 0"),
        ("min_rows = 2", "budget = {epsilon = 1, delta = 1}", "delta must be a number"),
        ("min_rows = 2", "budget = 1.0", "expected a table of"),
        ("min_rows = 2", "min_row = 2", "is it min_rows"),
        ('["surgery", "medicine"]', "[0, 1]", r'text such as \["0", "1"\]'),
        ("stays.csv", "stays.xlsx", "no CSV file: save it as one"),
        ("min_rows = 2", "max_exact_numbers = -1", "a number of at least 0"),
        ("min_cell_count = 1", "min_cell_count = -1", "min_cell_count must be"),
        ("min_rows = 2", 'version = "a b"', "version must be text"),
        ("min_rows = 2", "version = 2", "version must be text"),
        ("min_rows = 2", 'presets = {ckks = "default"}', "presets"),
        ("min_rows = 2", 'presets = {"plaintext" = ["x"]}', "presets"),
        ("min_rows = 2", 'presets = ["default"]', "presets"),
    ],
)
def test_entries_of_another_type_are_refused(tmp_path, right, wrong, message):
    with pytest.raises(PartitionError, match=message):
        load(tmp_path, SITE_FILE.replace(right, wrong))


def test_columns_are_a_table(tmp_path):
    text = SITE_FILE[: SITE_FILE.index("[datasets.icu.columns]")]
    with pytest.raises(PartitionError, match="columns must be a table"):
        load(tmp_path, text + 'columns = ["age"]\n')
