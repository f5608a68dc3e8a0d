import numpy as np
from threadpoolctl import threadpool_info

from skprivbn.utils._threads import single_threaded


def n_threads():
    return {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}


def test_linear_algebra_of_many_small_matrices_has_one_thread():
    np.eye(2) @ np.eye(2)
    before = n_threads()
    assert single_threaded(n_threads)() == {1}
    assert n_threads() == before
