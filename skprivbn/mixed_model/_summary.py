"""The table of a fitted mixed model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from skprivbn.federation import LedgerTable

__all__ = ["GLMMSummary"]


@dataclass(frozen=True)
class GLMMSummary:
    """Fixed and random effects of a fitted model; prints as R's ``summary`` would.

    Attributes
    ----------
    names : list of str
        Of the fixed effects, the intercept first.
    estimates, standard_errors : ndarray of shape (n_features + 1,)
    scale : float or None
        Standard deviation of the random effects; None without.
    log_likelihood : float
    n_rows, n_clusters, n_parties : int
    """

    names: list
    estimates: np.ndarray
    standard_errors: np.ndarray
    scale: float | None
    log_likelihood: float
    n_rows: int
    n_clusters: int
    n_parties: int

    @property
    def n_parameters(self) -> int:
        """Number of estimated parameters."""
        return len(self.names) + (self.scale is not None)

    @property
    def aic(self) -> float:
        """Akaike's criterion; smaller is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz' criterion; smaller is better."""
        return np.log(self.n_rows) * self.n_parameters - 2 * self.log_likelihood

    def conf_int(self, level: float = 0.95) -> np.ndarray:
        """Return Wald confidence intervals of the fixed effects.

        Parameters
        ----------
        level : float, default=0.95

        Returns
        -------
        limits : ndarray of shape (n_features + 1, 2)
        """
        half = norm.ppf((1 + level) / 2) * self.standard_errors
        return np.column_stack([self.estimates - half, self.estimates + half])

    def _columns(self):
        z = self.estimates / self.standard_errors
        return {
            "Estimate": self.estimates,
            "Std. Error": self.standard_errors,
            "z value": z,
            "Pr(>|z|)": 2 * norm.sf(np.abs(z)),
        }

    def to_frame(self) -> Any:
        """Return the fixed effects as a pandas DataFrame."""
        from skprivbn.utils import import_optional

        pandas = import_optional("pandas", "GLMMSummary.to_frame")
        return pandas.DataFrame(self._columns(), index=self.names)

    def _table(self):
        estimates, errors, z, p = self._columns().values()
        rows = [
            (
                name,
                f"{estimates[i]:9.4f}",
                f"{errors[i]:10.4f}",
                f"{z[i]:7.2f}",
                "<0.0001" if p[i] < 1e-4 else f"{p[i]:.4f}",
            )
            for i, name in enumerate(self.names)
        ]
        return LedgerTable(["Fixed effects", *self._columns()], rows)

    def _lines(self):
        mixed = self.scale is not None
        kind = "Logistic mixed model" if mixed else "Logistic regression"
        yield f"{kind}, {self.n_rows} rows of {self.n_parties} parties"
        yield (
            f"log-likelihood {self.log_likelihood:.2f}, AIC {self.aic:.1f}, "
            f"BIC {self.bic:.1f}"
        )
        if mixed:
            yield (
                f"Random effects: {self.n_clusters} clusters, variance "
                f"{self.scale**2:.4f}, std. dev. {self.scale:.4f}"
            )
            if self.scale < 1e-3:
                yield "boundary (singular) fit: the clusters do not differ"

    def __str__(self):
        return "\n".join([*self._lines(), "", str(self._table())])

    __repr__ = __str__

    def _repr_html_(self):
        lines = "<br>".join(self._lines())
        return f"<p>{lines}</p>{self._table()._repr_html_()}"
