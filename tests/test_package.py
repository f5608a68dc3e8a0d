import subprocess
import sys

import pytest

import skprivbn


@pytest.mark.parametrize("name", skprivbn._HOMES)
def test_headline_estimators_are_at_the_top(name):
    assert getattr(skprivbn, name).__name__ == name
    assert name in dir(skprivbn)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Median'"):
        skprivbn.Median  # noqa: B018


def test_importing_the_package_loads_no_cipher_and_no_plotting():
    code = (
        "import sys, skprivbn; "
        "slow = {'tenseal', 'phe', 'opendp', 'matplotlib', 'pandas', 'nvflare'}; "
        "sys.exit(bool(slow & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
