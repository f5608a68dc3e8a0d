import numpy as np
import pytest
from threadpoolctl import threadpool_info

from skprivbn.utils._linalg import single_threaded, symmetric, upper


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 2, 2), (2, 3, 5, 5)])
def test_there_and_back(shape):
    matrices = np.random.default_rng(0).normal(size=shape)
    matrices = matrices + np.swapaxes(matrices, -1, -2)
    vectors = upper(matrices)
    assert vectors.shape[-1] == shape[-1] * (shape[-1] + 1) // 2
    np.testing.assert_array_equal(symmetric(vectors), matrices)


def n_threads():
    return {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}


def test_linear_algebra_of_many_small_matrices_has_one_thread():
    np.eye(2) @ np.eye(2)
    before = n_threads()
    assert single_threaded(n_threads)() == {1}
    assert n_threads() == before
