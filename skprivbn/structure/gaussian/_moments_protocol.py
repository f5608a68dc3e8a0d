"""One secure sum of counts, sums and cross-products: both sides of the protocol."""

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    check_noise,
    check_told,
    check_told_bounds,
    declare_noise,
    operation,
)
from skprivbn.privacy import CountMechanism, DistributedNoise
from skprivbn.privacy._options import warn_of_noise
from skprivbn.structure._basis import expand
from skprivbn.structure.gaussian._moments import RowGrid, moment_sums, read_moments

__all__ = [
    "HOLDOUT",
    "GaussianMomentsParty",
    "collect_moments",
    "collect_noisy_moments",
]

#: part of the rows that searches are compared by
HOLDOUT = 0.3


class GaussianMomentsParty(Party):
    """A holder of rows who takes part in one or two sums."""

    @classmethod
    def privacy_noise(cls, settings, n_features, n_parties):
        """Return the noise of the one release, calibrated anew."""
        given = settings["noise"]
        if given is None:
            return None
        check_told_bounds([settings["low"], settings["high"]], n_features)
        mechanism = calibrate(_grid(settings), given["epsilon"], given["delta"])
        return check_noise(given, mechanism, n_parties)

    @classmethod
    def survives_losses(cls, settings):
        """Tell whether there is one sum only."""
        return settings["noise"] is not None or settings["basis"] is None

    def prepare(self):
        """Refuse rows that are not finite numbers."""
        self.X = self.finite_numbers()

    def schedule(self):
        """One sum; two if basis functions need the scale of the columns first."""
        if self.settings["noise"] is not None:
            yield "noisy_moments"
            return
        yield "moments"
        if self.settings["basis"] is not None:
            yield "basis_moments"

    @operation(
        tells="number of rows, column sums and cross-products of its rows", exact=True
    )
    def moments(self):
        """Sums over own rows, the held-out ones apart."""
        centre = self.settings["centre"]
        held_out = self._held_out()
        sums = moment_sums(self.X[~held_out], centre)
        if self.settings["holdout"] > 0.0:
            sums = np.concatenate([sums, moment_sums(self.X[held_out], centre)])
        return {"vector": self.hide(sums)}

    @operation(
        tells="column sums and cross-products of basis functions of its rows",
        hears="means and standard deviations of all columns",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def basis_moments(self, mean, scale):
        """Sums over the basis functions of own rows."""
        shape = self.X.shape[1:]
        Z = (self.X - check_told(mean, shape)) / check_told(scale, shape)
        Z = expand(Z, self.settings["basis"])
        return {"vector": self.hide(moment_sums(Z, self.settings["centre"]))}

    @operation(
        tells="noisy clipped moments of its rows", kind="noisy release", exact=True
    )
    def noisy_moments(self):
        """Clipped integer sums plus this party's share of the noise."""
        sums = _grid(self.settings).sums(self.X)
        noise = DistributedNoise(**self.settings["noise"])
        return {"vector": self.hide(sums + noise.share(sums.shape))}

    def _held_out(self):
        # Any other part could be one row, of the party with the most of them.
        if self.settings["holdout"] not in (0.0, HOLDOUT):
            raise PartyRefusal("refused")
        n = len(self.X)
        held_out = np.zeros(n, dtype=bool)
        n_held_out = int(self.settings["holdout"] * n)
        # statistical, not secret: the seed is public
        rng = np.random.default_rng(self.settings["seed"])
        held_out[rng.permutation(n)[:n_held_out]] = True
        return held_out


def _grid(settings):
    """The grid that the coordinator asks for, as coarse as its noise needs it."""
    noise = settings["noise"]
    grid = RowGrid(settings["low"], settings["high"])
    return grid.coarsened(noise["epsilon"], noise["delta"])


def collect_moments(federation):
    """The coordinator's side: one sum, read as moments (and those held out)."""
    settings = federation.settings
    total = federation.secure_sum("moments")
    parts = np.split(total, 2) if settings["holdout"] > 0.0 else [total]
    if parts[-1][0] < 2:
        raise ValueError(
            "too few rows: parties need several rows each to set some of them aside; "
            "name a search instead of 'auto'"
        )
    return [read_moments(part, settings["centre"]) for part in parts]


def collect_basis_moments(federation, moments):
    """The second sum, of basis functions of the standardised columns."""
    scale = np.sqrt(np.diag(moments.covariance))
    total = federation.secure_sum(
        "basis_moments", {"mean": moments.mean, "scale": scale}
    )
    return read_moments(total, federation.settings["centre"])


def calibrate(grid, epsilon, delta):
    """Noise with which the sums are (epsilon, delta)-DP."""
    return CountMechanism.for_budget(
        epsilon,
        delta,
        l1_sensitivity=grid.l1_sensitivity,
        l2_sensitivity=grid.l2_sensitivity,
    )


def collect_noisy_moments(federation, grid, noise):
    """The coordinator's side with differential privacy."""
    noise.check_survivors(len(federation.active))
    total = federation.secure_sum("noisy_moments")
    declare_noise(
        federation.ledger,
        noise,
        "moments of all rows, clipped to the bounds, with noise",
    )
    moments = grid.read(total, noise.std)
    d = len(moments.mean)
    # noise alone would make eigenvalues of about the square root times its size
    warn_of_noise(moments.noise * np.sqrt(d), np.trace(moments.covariance) / d)
    return moments
