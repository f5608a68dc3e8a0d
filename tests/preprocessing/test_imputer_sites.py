"""Imputer, encoders and scaler on rows that stay at sites."""

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.exceptions import PartyError
from skprivbn.preprocessing import (
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

X, WARD, PARTY, PEOPLE = make_rows()
GAPS = X.copy()
GAPS[::7, 0] = np.nan


@pytest.fixture
def federation(tmp_path):
    write_tables(tmp_path, GAPS, WARD, PARTY, PEOPLE)
    return connect(make_sites(tmp_path, site_files()), "icu")


@pytest.mark.parametrize("strategy", ["mean", "median"])
def test_gaps_are_filled_at_sites_and_what_follows_sees_complete_rows(
    federation, strategy
):
    rows = federation.rows(["a", "b"])
    imputer = FederatedSimpleImputer(strategy=strategy).fit(rows)
    expected = SimpleImputer(strategy=strategy).fit(GAPS)
    np.testing.assert_allclose(imputer.statistics_, expected.statistics_, rtol=1e-4)
    pipeline = make_pipeline(FederatedSimpleImputer(), FederatedPCA(1)).fit(rows)
    filled = SimpleImputer().fit_transform(GAPS)
    np.testing.assert_allclose(pipeline[-1].mean_, filled.mean(axis=0))
    # without the imputer, gaps are refused
    with pytest.raises(PartyError):
        FederatedPCA(1).fit(rows)


def test_scaler_leaves_gaps_at_sites(federation):
    scaler = FederatedStandardScaler().fit(federation.rows(["a", "b"]))
    np.testing.assert_allclose(scaler.var_, StandardScaler().fit(GAPS).var_)


def test_categories_that_sites_declare_are_public(federation):
    rows = federation.rows(["ward"])
    for encoder in (FederatedOneHotEncoder(), FederatedOrdinalEncoder()):
        encoder.fit(rows)
        assert encoder.categories_[0].tolist() == [0, 1]
        assert encoder.ledger_.entries == []
    one_hot = FederatedOneHotEncoder().fit(rows)
    scaler = FederatedStandardScaler().fit(one_hot.transform(rows))
    np.testing.assert_allclose(scaler.mean_, [np.mean(WARD == 0), np.mean(WARD == 1)])
