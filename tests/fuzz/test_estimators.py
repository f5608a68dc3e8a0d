"""Estimators fit whatever is given as data, or say which argument is wrong."""

import re
import warnings
from functools import partial
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array
from sklearn.base import clone

from skprivbn.exceptions import PartyError
from tests.estimators import public_estimators
from tests.fuzz.profiles import fuzzed

# What numpy says when nobody looked at the data before computing with them.
UNRELATED = re.compile(
    r"broadcast|not aligned|zero-size|out of bounds|singular"
    r"|unpack|'NoneType' object|has no attribute|cannot reshape|argmax|argmin"
)

#: what makes fits quick; not what is fuzzed
QUICK = {
    "backend": "masking",
    "max_iter": 3,
    "n_components": 2,
    "min_rows": 1,
    "max_parents": 1,
}
TWO_PARTY = {"PrivateK2StructureLearner"}

floats = st.one_of(
    st.floats(-100, 100),
    st.floats(),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e308, 5e-324]),
)
mixed = st.one_of(
    st.none(), floats, st.integers(-2, 3), st.text(max_size=2), st.booleans()
)
shapes = st.one_of(
    st.tuples(st.integers(0, 12), st.integers(0, 4)),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=3),
)
# of the right kind, so that fits happen as well
codes = hnp.arrays(
    np.int64,
    st.tuples(st.integers(8, 24), st.integers(1, 4)),
    elements=st.integers(0, 2),
)
numbers = hnp.arrays(
    float, st.tuples(st.integers(8, 24), st.integers(1, 4)), elements=st.floats(-9, 9)
)
tables = st.one_of(
    codes,
    numbers,
    hnp.arrays(float, shapes, elements=floats),
    hnp.arrays(np.float32, shapes),
    hnp.arrays(np.int64, shapes, elements=st.integers(-5, 5)),
    hnp.arrays(np.uint8, shapes),
    hnp.arrays(bool, shapes),
    hnp.arrays(np.complex128, shapes),
    hnp.arrays("U2", shapes),
    hnp.arrays("M8[D]", shapes),
    hnp.arrays(object, shapes, elements=mixed),
    st.lists(st.lists(mixed, max_size=3), max_size=5),
    st.one_of(codes, numbers).map(csr_array),
    st.one_of(codes, numbers).map(pd.DataFrame),
    hnp.arrays(
        object, st.tuples(st.integers(1, 9), st.integers(1, 3)), elements=mixed
    ).map(pd.DataFrame),
    st.sampled_from([None, "rows", 3, object()]),
)
columns = st.one_of(
    st.none(),
    st.lists(mixed, max_size=12),
    hnp.arrays(np.int64, st.integers(0, 12), elements=st.integers(0, 3)),
)


def n_rows(X):
    try:
        return len(X)
    except TypeError:
        return X.shape[0] if getattr(X, "shape", ()) else 0


@st.composite
def aligned(draw, X, values):
    """Values for each row of X, now and then something else."""
    if draw(st.integers(0, 4)) == 0:
        return draw(columns)
    seed = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).integers(values, size=n_rows(X))


def quick(estimator):
    """Return a copy whose fit is short."""
    copy = clone(estimator)
    if type(estimator).__name__ in TWO_PARTY:
        return copy.set_params(parties={"a": [0], "b": slice(1, None)}, max_parents=1)
    known = copy.get_params(deep=False)
    return copy.set_params(**{k: v for k, v in QUICK.items() if k in known})


def run_or_refuse(call):
    """Call; the only errors allowed are about an argument."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            call()
        except PartyError as error:
            # where only the party sees its values: too large ones, missing ones
            assert error.code in {"out-of-range", "invalid-data", "too-few-rows"}, str(
                error
            )
            return False
        except (ValueError, TypeError) as error:
            assert not isinstance(error, np.linalg.LinAlgError)
            assert str(error) and not UNRELATED.search(str(error)), str(error)
            return False
    return True


@pytest.mark.parametrize(
    "estimator", public_estimators(), ids=lambda estimator: type(estimator).__name__
)
def test_any_data_are_fitted_or_refused(estimator):
    takes = signature(estimator.fit).parameters

    @fuzzed(0.8)
    @given(st.data())
    def check(data):
        X = data.draw(tables, label="X")
        y = data.draw(aligned(X, 2), label="y")
        given_too = {
            name: data.draw(aligned(X, 3), label=name)
            for name in ("party", "cluster")
            if name in takes
        }
        model = quick(estimator)
        if not run_or_refuse(partial(model.fit, X, y, **given_too)):
            return
        other = data.draw(tables, label="other")
        for method in ("predict", "predict_proba", "transform", "score_samples"):
            if hasattr(model, method):
                run_or_refuse(partial(getattr(model, method), other))

    check()
