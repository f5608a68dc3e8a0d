from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivbn.crypto._derive import expand, extract, join_fields
from skprivbn.crypto._numbers import (
    RangeError,
    add_limbs,
    check_vector,
    decode_fixed_point,
    encode_fixed_point,
    join_digits,
    limbs_from_bytes,
    limbs_to_bytes,
    pack_limbs,
    pack_shortest,
    split_digits,
    subtract_limbs,
    sum_limbs,
    unpack_limbs,
    unpack_shortest,
    wrap_limbs,
)
from tests.fuzz.profiles import fuzzed

floats = st.floats(-(2.0**62), 2.0**62)
words = st.integers(0, 2**128 - 1)


def to_integers(limbs):
    return [int(low) + (int(high) << 64) for low, high in limbs.T]


def to_limbs(numbers):
    rows = [[n % 2**64 for n in numbers], [n >> 64 for n in numbers]]
    return np.array(rows, dtype=np.uint64)


@fuzzed(6)
@given(st.lists(floats, min_size=1))
def test_encoding_is_the_nearest_multiple(values):
    encoded = to_integers(encode_fixed_point(np.array(values)))
    for value, number in zip(values, encoded):
        signed = number - 2**128 if number >= 2**127 else number
        assert abs(Fraction(signed, 2**56) - Fraction(value)) <= Fraction(1, 2**57)


@fuzzed(6)
@given(st.lists(floats, min_size=1))
def test_floats_round_trip(values):
    vector = np.array(values)
    decoded = decode_fixed_point(encode_fixed_point(vector), vector.dtype)
    np.testing.assert_allclose(decoded, vector, rtol=2e-16, atol=2.0**-57)


@fuzzed(6)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_round_trip(values):
    vector = np.array(values, dtype=np.int64)
    decoded = decode_fixed_point(encode_fixed_point(vector), vector.dtype)
    np.testing.assert_array_equal(decoded, vector)


@fuzzed(6)
@given(st.lists(st.tuples(words, words), min_size=1))
def test_limb_arithmetic_is_that_of_integers(pairs):
    first, second = (to_limbs(numbers) for numbers in zip(*pairs))
    total = first.copy()
    add_limbs(total, second)
    assert to_integers(total) == [(a + b) % 2**128 for a, b in pairs]
    difference = first.copy()
    subtract_limbs(difference, second)
    assert to_integers(difference) == [(a - b) % 2**128 for a, b in pairs]
    data = limbs_to_bytes(first)
    assert len(data) == 16 * len(pairs)
    np.testing.assert_array_equal(limbs_from_bytes(data), first)


@fuzzed(6)
@given(st.lists(words, min_size=1, max_size=9), st.integers(1, 16))
def test_packed_integers_are_the_lowest_bytes_with_a_sign(numbers, n_bytes):
    data = pack_limbs(to_limbs(numbers), n_bytes)
    assert len(data) == n_bytes * len(numbers)
    modulus = 2 ** (8 * n_bytes)
    signed = [(n + modulus // 2) % modulus - modulus // 2 for n in numbers]
    found = to_integers(unpack_limbs(data, n_bytes))
    assert found == [n % 2**128 for n in signed]
    if n_bytes >= 8:
        wrapped = to_limbs(numbers)
        wrap_limbs(wrapped, n_bytes)
        assert to_integers(wrapped) == found


@fuzzed(6)
@given(st.lists(words, min_size=1, max_size=9), st.integers(1, 16), st.integers(1, 9))
def test_packed_integers_add_up(numbers, n_bytes, n_vectors):
    data = pack_limbs(to_limbs(numbers), n_bytes)
    total = sum_limbs([data] * n_vectors, n_bytes)
    modulus = 2 ** (8 * n_bytes)
    found = [n % modulus for n in to_integers(total)]
    assert found == [n_vectors * n % modulus for n in numbers]


@fuzzed(6)
@given(st.lists(words, max_size=9), st.integers(0, 127), st.integers(0, 127))
def test_shortest_form_is_short_and_the_same(numbers, n_zeros, n_signs):
    signed = [n - 2**128 if n >= 2**127 else n for n in numbers]
    numbers = [(n >> n_signs << n_zeros) % 2**128 for n in signed]
    limbs = to_limbs(numbers).reshape(2, -1)
    data, n_bytes, shift = pack_shortest(limbs)
    assert len(data) == n_bytes * len(numbers)
    np.testing.assert_array_equal(unpack_shortest(data, n_bytes, shift), limbs)
    signed = [n - 2**128 if n >= 2**127 else n for n in numbers]
    bits = max((((n ^ (n >> 127)) >> shift).bit_length() for n in signed), default=0)
    assert n_bytes == bits // 8 + 1 or not any(numbers)


@fuzzed(6)
@given(
    st.lists(st.integers(-(2**111), 2**111 - 1), min_size=1, max_size=9),
    st.integers(1, 46),
)
def test_digits_are_those_of_python_integers(numbers, n_bits):
    n_digits = -(-112 // n_bits)
    digits = split_digits(to_limbs([n % 2**128 for n in numbers]), n_bits, n_digits)
    assert digits.shape == (n_digits, len(numbers))
    for column, number in zip(digits.T.tolist(), numbers):
        *lower, last = column
        expected = [number >> n_bits * i & 2**n_bits - 1 for i in range(n_digits)]
        assert lower == expected[:-1]
        assert last == number >> n_bits * (n_digits - 1)


@fuzzed(6)
@given(st.data(), st.integers(1, 46))
def test_sums_of_digits_are_digits_of_sums(data, n_bits):
    """Whatever the digits, as long as they are in 64 bits: modulo 2**128."""
    n_digits = -(-112 // n_bits)
    digit = st.integers(-(2**62), 2**62)
    rows = data.draw(
        st.lists(
            st.lists(digit, min_size=3, max_size=3),
            min_size=n_digits,
            max_size=n_digits,
        )
    )
    found = to_integers(join_digits(np.array(rows, dtype=np.int64), n_bits))
    expected = [
        sum(d << n_bits * i for i, d in enumerate(column)) % 2**128
        for column in zip(*rows)
    ]
    assert found == expected


def test_check_vector():
    assert check_vector(np.ones(3, dtype=np.float32)).dtype == np.float64
    assert check_vector(np.ones(3, dtype=bool)).dtype == np.int64
    assert check_vector([1, 2]).dtype == np.int64
    for bad in (np.ones((2, 2)), np.array(["a"]), np.array([1j]), 3.0):
        with pytest.raises(ValueError, match="one-dimensional|dtype"):
            check_vector(bad)
    with pytest.raises(RangeError):
        check_vector(np.array([2**63], dtype=np.uint64))


def test_check_vector_counts_all_parties():
    for limit, below in ((2.0**55, 1.0), (2**63, 100)):
        for sign in (1, -1):
            check_vector(np.array([sign * (limit // 10 - below)]), 10)
            with pytest.raises(RangeError, match="over 10 parties.*rescale"):
                check_vector(np.array([sign * (limit // 10 + below)]), 10)
    with pytest.raises(RangeError, match="over 1 parties"):
        check_vector(np.array([-(2**63)]))
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(RangeError, match="NaN or infinite"):
            check_vector(np.array([1.0, wrong]), 10)
    assert check_vector(np.array([]), 10).size == 0


def test_range_errors_are_overflow_errors():
    assert issubclass(RangeError, OverflowError)


@pytest.mark.parametrize(
    ("secret", "salt", "info", "prk", "okm"),
    [
        (  # RFC 5869, test case 1
            "0b" * 22,
            "000102030405060708090a0b0c",
            "f0f1f2f3f4f5f6f7f8f9",
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
            "34007208d5b887185865",
        ),
        (  # RFC 5869, test case 3: no salt, no info
            "0b" * 22,
            "",
            "",
            "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
            "9d201395faa4b61a96c8",
        ),
    ],
)
def test_hkdf_known_answers(secret, salt, info, prk, okm):
    key = extract(bytes.fromhex(secret), bytes.fromhex(salt))
    assert key.hex() == prk
    expected = bytes.fromhex(okm)
    assert expand(key, bytes.fromhex(info), len(expected)) == expected


def test_hkdf_length_limits():
    for length in (0, 8161):
        with pytest.raises(ValueError, match="8160"):
            expand(bytes(32), b"", length)


def test_fields_cannot_be_shifted_into_each_other():
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("ab", 99), (b"ab", b"c")]
    assert len({join_fields(*fields) for fields in lists}) == len(lists) - 1


@fuzzed(6)
@given(st.lists(st.lists(words, min_size=3, max_size=3), min_size=1, max_size=20))
def test_many_numbers_add_up_modulo_2_to_the_128(rows):
    total = to_integers(sum_limbs([limbs_to_bytes(to_limbs(row)) for row in rows]))
    assert total == [sum(column) % 2**128 for column in zip(*rows)]
