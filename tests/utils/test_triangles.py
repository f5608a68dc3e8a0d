import numpy as np
import pytest

from skprivbn.utils._triangles import symmetric, upper


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 2, 2), (2, 3, 5, 5)])
def test_there_and_back(shape):
    matrices = np.random.default_rng(0).normal(size=shape)
    matrices = matrices + np.swapaxes(matrices, -1, -2)
    vectors = upper(matrices)
    assert vectors.shape[-1] == shape[-1] * (shape[-1] + 1) // 2
    np.testing.assert_array_equal(symmetric(vectors), matrices)
