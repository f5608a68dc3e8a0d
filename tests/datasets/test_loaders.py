import sys

import numpy as np
import pytest

from skprivbn.datasets import load_adult, load_msnbc, load_parkinsons, load_sachs

LOADERS = [load_adult, load_msnbc, load_parkinsons, load_sachs]


def test_sachs():
    sachs = load_sachs()
    assert sachs.data.shape == (853, 11) and (sachs.data > 0).all()
    assert sachs.adjacency_matrix.sum() == len(sachs.edges) == 17
    raf, mek = sachs.feature_names.index("raf"), sachs.feature_names.index("mek")
    assert sachs.adjacency_matrix[raf, mek] and not sachs.adjacency_matrix[mek, raf]
    np.testing.assert_allclose(sachs.data[0, :3], [26.4, 13.2, 8.82])


def test_parkinsons_keeps_label_and_speaker_out_of_the_data():
    parkinsons = load_parkinsons()
    assert parkinsons.data.shape == (195, 22) and parkinsons.data.dtype == float
    assert len(parkinsons.feature_names) == 22
    assert not {"name", "status", "subject"} & set(parkinsons.feature_names)
    assert list(np.bincount(parkinsons.target)) == [48, 147]
    ill = {
        s: set(parkinsons.target[parkinsons.subject == s])
        for s in np.unique(parkinsons.subject)
    }
    assert len(ill) == 32 and all(len(status) == 1 for status in ill.values())
    assert sum(status == {1} for status in ill.values()) == 24
    X, y = load_parkinsons(return_X_y=True)
    np.testing.assert_array_equal(X, parkinsons.data)
    np.testing.assert_array_equal(y, parkinsons.target)


def test_adult():
    train, test = load_adult(), load_adult(subset="test")
    assert train.data.shape == (32561, 14) and test.data.shape == (16281, 14)
    assert np.mean(train.target == ">50K") == pytest.approx(0.2408, abs=1e-4)
    age = train.data[:, train.feature_names.index("age")].astype(int)
    assert age.min() == 17 and age.max() == 90
    workclass = train.data[:, train.feature_names.index("workclass")]
    missing = np.array([value != value for value in workclass])
    assert missing.sum() == 1836
    assert set(workclass[~missing]) == set(train.categories["workclass"])


@pytest.mark.slow
def test_discretized_adult_codes_mean_what_the_labels_say():
    raw, coded = load_adult(subset="all"), load_adult(subset="all", discretized=True)
    assert coded.data.shape == (48842, 14) and coded.data.dtype.kind == "i"
    assert list(coded.categories) == [*coded.feature_names, "income"]
    np.testing.assert_array_equal(
        np.array(coded.target_names)[coded.target], raw.target.astype(str)
    )
    for j, name in enumerate(coded.feature_names):
        labels = np.array(coded.categories[name])[coded.data[:, j]]
        for label, value in zip(labels[:500], raw.data[:500, j]):
            if label == "?":
                assert value != value
            elif isinstance(value, str):
                assert label == value
            elif label.startswith("<"):
                assert value < int(label[1:])
            elif label.startswith(">="):
                assert value >= int(label[2:])
            else:
                low, _, high = label.partition("-")
                assert int(low) <= value <= int(high or low)


def test_adult_domain_is_the_same_for_both_subsets():
    train, test = (load_adult(subset=s, discretized=True) for s in ["train", "test"])
    assert train.categories == test.categories
    for bunch in (train, test):
        sizes = [len(bunch.categories[name]) for name in bunch.feature_names]
        assert (bunch.data < sizes).all() and (bunch.data >= 0).all()


def test_msnbc():
    msnbc = load_msnbc()
    assert msnbc.data.shape == (97108, 17)
    assert set(np.unique(msnbc.data)) == {0, 1}
    assert msnbc.feature_names[0] == "frontpage"


@pytest.mark.parametrize("load", LOADERS)
def test_frames_agree_with_arrays(load):
    pytest.importorskip("pandas")
    plain, framed = load(), load(as_frame=True)
    assert plain.frame is None
    assert list(framed.data.columns) == plain.feature_names
    assert set(plain.feature_names) <= set(framed.frame.columns)
    first = framed.data.iloc[:200].to_numpy(dtype=object)
    same = first == plain.data[:200]
    both_missing = (first != first) & (plain.data[:200] != plain.data[:200])
    assert (same | both_missing).all()
    if "target" in plain:
        assert (np.asarray(framed.target) == plain.target).all()
        assert framed.target.name in framed.frame.columns


def test_frame_of_adult_has_the_public_categories():
    pytest.importorskip("pandas")
    adult = load_adult(as_frame=True)
    for name, states in adult.categories.items():
        assert list(adult.frame[name].cat.categories) == states


@pytest.mark.parametrize("load", LOADERS)
def test_descriptions_name_source_and_licence(load):
    text = load().DESCR
    assert "Source:" in text and "Reference:" in text
    assert "CC BY 4.0" in text or "CC0" in text


def test_frames_need_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert load_sachs().data.shape == (853, 11)
    with pytest.raises(ImportError, match="pip install pandas"):
        load_sachs(as_frame=True)
