"""Whatever the numbers: the sum is right to the stated error, or refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skprivbn.crypto import (
    CKKSBackend,
    MaskingBackend,
    PaillierBackend,
    PlaintextBackend,
    RangeError,
)
from skprivbn.crypto._numbers import FRACTION_BITS
from tests.crypto.micro_federation import secure_sum
from tests.fuzz.profiles import fuzzed

#: backend, share of examples
BACKENDS = {
    "plaintext": (PlaintextBackend(), 2),
    "masking": (MaskingBackend(), 2),
    "recovery": (MaskingBackend(recovery=True), 0.4),
    "paillier": (PaillierBackend(key_size=512, insecure_test_key=True), 0.4),
    "ckks": (CKKSBackend(), 0.3),
}
shapes = st.tuples(st.integers(1, 5), st.integers(0, 6))
floats = hnp.arrays(float, shapes, elements=st.floats())
moderate = hnp.arrays(float, shapes, elements=st.floats(-1e4, 1e4))
integers = hnp.arrays(np.int64, shapes, elements=st.integers(-(2**40), 2**40))


def allowed_error(backend, vectors):
    largest = np.abs(vectors).sum(axis=0).max(initial=0.0)
    rounding = 2 * len(vectors) * np.finfo(float).eps * largest
    grid = 2.0**-FRACTION_BITS
    return len(vectors) * grid / 2 + rounding


@pytest.mark.parametrize("name", BACKENDS)
def test_sums_are_right_or_refused(name):
    backend, share = BACKENDS[name]

    @fuzzed(share)
    @given(st.one_of(moderate, floats, integers))
    def check(vectors):
        try:
            total = secure_sum(backend, vectors)
        except (RangeError, ValueError) as error:
            assert str(error)
            assert not np.all(np.abs(vectors) <= 1e4)  # these always fit
            return
        expected = vectors.sum(axis=0)
        if vectors.dtype.kind == "i":
            np.testing.assert_array_equal(total, expected)
        else:
            error = allowed_error(backend, vectors)
            np.testing.assert_allclose(total, expected, rtol=0, atol=error)

    check()
