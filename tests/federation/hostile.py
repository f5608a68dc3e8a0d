"""A coordinator that says what no estimator would."""

from dataclasses import replace

from skprivbn.crypto._numbers import encode_fixed_point, limbs_from_bytes


def other_total(total, values):
    """Return a sum with other values, as anybody can make it who reads the sum.

    Parameters
    ----------
    total : OpenSum
        Under masks.
    values : ndarray of shape (n_values,)

    Returns
    -------
    payload : dict
        What parties are handed in place of the sum.
    """
    limbs = limbs_from_bytes(total.hidden.parts[0]).copy()
    limbs[:, : len(values)] = encode_fixed_point(values)
    return replace(total.hidden, parts=[limbs.tobytes()]).to_payload()


class HostileTerms:
    """Terms whose fields are changed on their way to the parties."""

    def __init__(self, terms, **changes):
        self._terms, self._changes = terms, changes

    def __getattr__(self, name):
        return getattr(self._terms, name)

    def to_payload(self):
        return self._terms.to_payload() | self._changes

    def raised_to(self, limits):
        return self
