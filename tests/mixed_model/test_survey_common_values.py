"""Standard errors tell products of features: two costs that one patient has both."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.mixed_model import PrivateGLMMRegressor, _survey
from tests.federation.site.loopback import open_sites


@pytest.mark.filterwarnings("ignore:no cluster was given")
def test_attack_the_product_of_one_patient(tmp_path, monkeypatch):
    rng, rows = np.random.default_rng(0), np.zeros((300, 3))
    rows[:60, 0], rows[59:120, 1] = rng.gamma(20, 1, 60), rng.gamma(20, 1, 61)
    patient, rows = rows[59, :2].prod(), rng.permutation(rows)
    rows[:, 2] = rng.normal(0.0, 1.0, 300)
    tables = {n: x.tolist() for n, x in zip("abc", np.split(rows, 3))}
    columns = dict.fromkeys(["one", "other", "y"], '"float"')
    sites = open_sites(tmp_path, tables, columns, ["PrivateGLMMRegressor"])

    def fit():
        return PrivateGLMMRegressor().fit(sites.rows(["one", "other"]), y="y")

    with pytest.raises(PartyError, match="'one'|'other'"):
        fit()
    # the twin
    monkeypatch.setattr(
        _survey,
        "centres_of_pairs",
        lambda rows, mean: (mean, np.zeros(len(mean), dtype=bool)),
    )
    # number, sums and products of rows, each over the residual variance
    told = np.linalg.inv(fit().covariance_)
    assert told[1, 2] / told[0, 0] * 300 == pytest.approx(patient, rel=1e-6)
