"""What a private fit of a mixture would find in rows of a known mixture."""

from functools import partial

import numpy as np
from scipy.optimize import linear_sum_assignment

from skprivbn.federation._rows import paired_blocks
from skprivbn.mixture._gaussian_steps import Mixture
from skprivbn.mixture._noisy_em import Box, PrivateEMTerms, noisy_steps


def draw_rows(
    mixture: Mixture, n_rows: int, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of a mixture, ordered by component, and their components."""
    weights = mixture.weights / mixture.weights.sum()
    counts = rng.multinomial(n_rows, weights)
    n_components, n_features = mixture.means.shape
    covariances = mixture.covariances
    if mixture.covariance_type == "tied":
        covariances = [covariances] * n_components
    blocks = []
    for mean, covariance, count in zip(mixture.means, covariances, counts):
        if mixture.covariance_type in ("full", "tied"):
            # positive definite once, perhaps no longer to the digits of float32
            normal = rng.multivariate_normal(mean, covariance, int(count), "ignore")
            blocks.append(normal)
        else:
            normal = rng.standard_normal(size=(count, n_features))
            blocks.append(mean + normal * np.sqrt(covariance))
    return np.vstack(blocks), np.repeat(np.arange(n_components), counts)


def bootstrapped(
    mixture: Mixture,
    terms: PrivateEMTerms,
    n_parties: int,
    n_rows: int,
    n_fits: int,
    rng: np.random.RandomState,
) -> dict[str, np.ndarray]:
    """Return what private fits find in rows drawn from a mixture.

    Parameters
    ----------
    mixture : Mixture
        The truth of the simulation.
    terms : PrivateEMTerms
        Of the real fit.
    n_parties, n_rows, n_fits : int
    rng : RandomState

    Returns
    -------
    found : dict of str to ndarray of shape (n_fits, ...)
        Weights, means and covariances, which are not shrunk, of components in the
        order of the mixture's.
    """
    low, high = terms.bounds
    box, found = Box.between(low, high, terms.covariance_type), []
    for _ in range(n_fits):
        rows = box.inside(np.clip(draw_rows(mixture, n_rows, rng)[0], low, high))
        blocks = partial(paired_blocks, rows, np.ones(n_rows))
        fit = _answer(noisy_steps(terms, box, blocks, n_parties), rng)
        gaps = (mixture.means[:, np.newaxis] - fit["means"]) / box.half
        _, order = linear_sum_assignment((gaps**2).sum(axis=2))
        covariances = fit["unshrunk"]
        if terms.covariance_type != "tied":
            covariances = covariances[order]
        found.append((fit["weights"][order], fit["means"][order], covariances))
    names = "weights_", "means_", "covariances_"
    return {name: np.array(values) for name, values in zip(names, zip(*found))}


def _answer(steps, rng):
    """Answer the steps of a fit with simulated noise, and return what it finds."""
    total = None
    while True:
        try:
            asked = steps.send(total)
        except StopIteration as end:
            return end.value
        std = asked.noise.std
        drawn = {
            "laplace": rng.laplace(0, std / 2**0.5, len(asked.counts)),
            "gaussian": rng.normal(0, std, len(asked.counts)),
        }
        total = asked.counts + np.rint(drawn[asked.noise.kind])
