import numpy as np
import pytest


@pytest.fixture
def blocks():
    rng = np.random.default_rng(0)
    return {
        name: {"X": rng.normal(size=(n, 2))}
        for name, n in [("north", 5), ("south", 7), ("west", 4)]
    }
