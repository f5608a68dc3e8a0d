"""Settings of a learner that stand together, their old names, and rounded rows."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skprivbn.graphical_model import DPCGMLearner
from tests.graphical_model.test_dpcgm import X, learner

__all__ = ["X"]

OLD_NAMES = {
    "clique_params": "tied max_states structural_zeros workload",
    "method_params": "discrepancy psgd_params inference max_iter",
    "contribution": "max_records max_weight null_state",
}


@pytest.mark.parametrize("new", OLD_NAMES)
def test_an_old_name_of_a_parameter_is_answered_by_the_new_one(new):
    for old in OLD_NAMES[new].split():
        with pytest.raises(TypeError, match=f"no parameter '{old}'.*write {new}="):
            DPCGMLearner(**{old: 1})


def test_a_setting_of_another_method_is_refused(X):
    with pytest.raises(ValueError, match="method='auto', takes .* not .'clip'"):
        learner(method_params={"clip": 1.0}).fit(X)
    with pytest.raises(ValueError, match="'max_weight' parameter of contribution"):
        learner(contribution={"max_weight": 0}).fit(X)


def test_options_of_cgm_are_known(X):
    with pytest.raises(ValueError, match="method_params, with method='cgm', takes"):
        learner(method="cgm", method_params={"discrepancies": 1.0}).fit(X)
    options = {"method": "cgm", "cliques": "chain", "epsilon": 4.0}
    early, late = (
        learner(**options, method_params={"discrepancy": stop}).fit(X).n_iter_
        for stop in (2.0, 0.3)
    )
    assert early < late


def test_rounded_rows_of_a_frame_have_the_fields_one_way_tables():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"sex": rng.choice(["f", "m"], 500), "age": rng.uniform(0, 90, 500)}
    )
    found = learner(
        states={"sex": ["f", "m"]}, bins={"age": range(0, 91, 10)}, epsilon=20.0
    ).fit(frame)
    rows = found.sample(1000, random_state=0, method="rounded")
    counts = rows["sex"].value_counts()
    expected = 1000 * found.marginal("sex")
    assert np.all(np.abs([counts["f"], counts["m"]] - expected) <= 1)
    with pytest.raises(ValueError, match="'independent' or 'rounded'"):
        found.sample(3, method="exact")


@pytest.mark.parametrize("method", ["auto", "cgm", "naive", "psgd", "exact"])
def test_every_method_tells_of_its_steps(X, method, capsys):
    own = {"n_steps": 4} if method == "psgd" else {"max_iter": 3}
    options = {"epsilon": 4.0, "method_params": own}
    options["delta"] = 1e-6 if method == "psgd" else 0.0
    if method == "exact":
        method, options["epsilon"] = "auto", None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = learner(method=method, verbose=2, **options).fit(X)
    *steps, last = capsys.readouterr().out.splitlines()
    assert steps[0].startswith("[DPCGMLearner] step 1, ")
    assert last.startswith(f"[DPCGMLearner] {len(steps)} step")
    if method in ("cgm", "psgd"):
        assert len(steps) == found.n_iter_
    if method == "auto" and options["epsilon"] is not None:
        assert ", signal " in steps[0]
        found.fit_marginals({(0, 1): np.ones((3, 4))}, 1.0)
        assert "step 1, signal " in capsys.readouterr().out
