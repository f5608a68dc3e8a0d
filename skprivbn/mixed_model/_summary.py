"""The tables of a fitted mixed model, and the comparison of two."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from skprivbn.federation import LedgerTable
from skprivbn.utils import import_optional

#: what stands for characters that have a meaning of their own
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "|*_`\\"})
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%_#${}"}
    | {"<": "$<$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"\\": r"\textbackslash{}"}
)


def _print_p(p):
    """Return a p value as journals print it."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _decimals(sizes):
    """Return the decimals, from 4 to 10, that show two digits of all positive sizes."""
    sizes = np.asarray(sizes, dtype=float)
    least = min(sizes[np.isfinite(sizes) & (sizes > 1e-9)], default=1.0)
    return int(np.clip(1 - np.floor(np.log10(least)), 4, 10))


def _aligned(values, decimals, width):
    """Write numbers below each other."""
    texts = [f"{value:.{decimals}f}" for value in values]
    width = max([width, *map(len, texts)])
    return [text.rjust(width) for text in texts]


@dataclass(frozen=True)
class VarianceComponents:
    """Variances and correlations of random effects; prints as R's ``VarCorr``.

    Attributes
    ----------
    names : dict of str to list of str
        What varies with each factor.
    covariances : dict of str to ndarray of shape (n_effects, n_effects)
    residual : float or None
        Standard deviation of the rows, in linear models.
    n_scales : int, default=1
        Clusters with a standard deviation each, of which `covariances` are means.
    """

    names: dict
    covariances: dict
    residual: float | None
    n_scales: int = 1

    @property
    def n_parameters(self) -> int:
        """Number of variances and correlations, with the residual's."""
        n = 0
        for matrix in self.covariances.values():
            size, independent = len(matrix), np.all(matrix == np.diag(np.diag(matrix)))
            n += size if independent else size * (size + 1) // 2
        return n * self.n_scales + (self.residual is not None)

    def correlations(self, factor: str | None = None) -> np.ndarray:
        """Return the correlations of one factor's effects.

        Parameters
        ----------
        factor : str, default=None
            The only one, if None.

        Returns
        -------
        correlations : ndarray of shape (n_effects, n_effects)
            NaN with effects that do not vary.
        """
        if factor is None:
            (factor,) = self.covariances
        matrix = self.covariances[factor]
        scale = np.sqrt(np.diag(matrix))
        with np.errstate(invalid="ignore", divide="ignore"):
            return matrix / np.outer(scale, scale)

    def _rows(self):
        for factor, names in self.names.items():
            matrix, correlation = self.covariances[factor], self.correlations(factor)
            for i, name in enumerate(names):
                related = correlation[i, :i]
                related = related if matrix[i, :i].any() else []
                many = f", mean of {self.n_scales}" if self.n_scales > 1 else ""
                yield (
                    factor if i == 0 else "",
                    name + many,
                    matrix[i, i],
                    np.sqrt(matrix[i, i]),
                    " ".join(f"{value:.2f}" for value in related),
                )
        if self.residual is not None:
            yield "Residual", "", self.residual**2, self.residual, ""

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame."""
        pandas = import_optional("pandas", "VarianceComponents.to_frame")
        columns = ["Group", "Effect", "Variance", "Std. Dev.", "Correlation"]
        return pandas.DataFrame(list(self._rows()), columns=columns)

    def _table(self):
        groups, effects, variances, scales, related = zip(*self._rows())
        decimals = _decimals(variances)
        numbers = (_aligned(values, decimals, 9) for values in (variances, scales))
        rows = list(zip(groups, effects, *numbers, related))
        header = ["Random effects", "", "Variance", "Std. Dev.", "Corr."]
        return LedgerTable(header, rows)

    def __str__(self):
        return str(self._table())

    __repr__ = __str__

    def _repr_html_(self):
        return self._table()._repr_html_()


@dataclass(frozen=True)
class GLMMSummary:
    """Fixed and random effects of a fitted model; prints as R's ``summary`` would.

    Attributes
    ----------
    kind : str
        What the model is called.
    classes : list or None
        The two classes; the model is of the second.
    ratio : str or None
        What exponentials of coefficients are: odds, rate or hazard ratios, if any.
    names : list of str
        Of the fixed effects, the intercept first.
    estimates, standard_errors : ndarray of shape (n_fixed,)
    components : VarianceComponents or None
        Of the random effects; None without.
    converged : bool
        Whether the search ended by itself.
    singular : bool
        Whether a variance is zero, or a correlation one.
    log_likelihood : float
    n_rows, n_parties : int
    n_clusters : dict of str to int
    """

    kind: str
    classes: list | None
    ratio: str | None
    names: list
    estimates: np.ndarray
    standard_errors: np.ndarray
    components: VarianceComponents | None
    converged: bool
    singular: bool
    log_likelihood: float
    n_rows: int
    n_clusters: dict
    n_parties: int

    @property
    def n_parameters(self) -> int:
        """Number of estimated parameters."""
        n_random = 0 if self.components is None else self.components.n_parameters
        return len(self.names) + n_random

    @property
    def aic(self) -> float:
        """Akaike's criterion; smaller is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz' criterion; smaller is better."""
        return np.log(self.n_rows) * self.n_parameters - 2 * self.log_likelihood

    def conf_int(
        self, level: float = 0.95, *, exponentiate: bool = False
    ) -> dict[str, tuple[float, float]]:
        """Return Wald confidence intervals of the fixed effects.

        Parameters
        ----------
        level : float, default=0.95
        exponentiate : bool, default=False
            Whether they are of odds, rate or hazard ratios.

        Returns
        -------
        limits : dict of str to tuple of (float, float)
            By name of the fixed effect.
        """
        low, high = self._limits(level, exponentiate).tolist()
        return dict(zip(self.names, zip(low, high)))

    def _limits(self, level, exponentiate):
        half = norm.ppf((1 + level) / 2) * self.standard_errors
        limits = np.array([self.estimates - half, self.estimates + half])
        if exponentiate and self.ratio is None:
            raise ValueError(
                "exponentiate=True makes odds, rate and hazard ratios, which go with "
                f"the links logit, log and cloglog, not with this {self.kind}"
            )
        return np.exp(limits) if exponentiate else limits

    def _columns(self, exponentiate=False, conf_int=False, level=0.95):
        z = self.estimates / self.standard_errors
        columns = {"Estimate": self.estimates, "Std. Error": self.standard_errors}
        limits = self._limits(level, exponentiate)
        if exponentiate:
            columns = {self.ratio: np.exp(self.estimates)}
        if conf_int:
            ends = 50 * (1 - level), 50 * (1 + level)
            columns |= {f"{end:g} %": side for end, side in zip(ends, limits)}
        return columns | {"z value": z, "Pr(>|z|)": 2 * norm.sf(np.abs(z))}

    def to_frame(
        self,
        *,
        exponentiate: bool = False,
        conf_int: bool = False,
        level: float = 0.95,
        digits: int | None = None,
    ) -> Any:
        """Return the fixed effects as a pandas DataFrame.

        Parameters
        ----------
        exponentiate : bool, default=False
            Whether to tell odds, rate or hazard ratios instead of coefficients and
            their standard errors; that of the intercept is the odds or the rate where
            all features are 0.
        conf_int : bool, default=False
            Whether to add the ends of Wald confidence intervals.
        level : float, default=0.95
            Of these.
        digits : int, default=None
            After the decimal point, for text as journals print it: estimates, intervals
            and p values, as in :meth:`to_latex` and :meth:`to_markdown`.

        Returns
        -------
        frame : DataFrame
        """
        pandas = import_optional("pandas", "GLMMSummary.to_frame")
        columns = self._columns(exponentiate, conf_int, level)
        if digits is not None:
            columns = self._printed(exponentiate, conf_int, level, digits)
        return pandas.DataFrame(columns, index=self.names)

    def _printed(self, exponentiate, conf_int, level, digits):
        """Return columns of text as journals print them."""
        estimates, *_, p = self._columns(exponentiate, conf_int, level).items()
        columns = {estimates[0]: [f"{value:.{digits}f}" for value in estimates[1]]}
        if conf_int:
            columns[f"{100 * level:g} % CI"] = [
                f"{low:.{digits}f} to {high:.{digits}f}"
                for low, high in self._limits(level, exponentiate).T
            ]
        return columns | {"p": [_print_p(value) for value in p[1]]}

    def _printed_rows(self, escapes, *options):
        """Return the rows of a printed table, that of the header first."""
        columns = self._printed(*options)
        rows = [["", *columns], *zip(self.names, *columns.values())]
        return [[str(cell).translate(escapes) for cell in row] for row in rows]

    def to_markdown(
        self,
        *,
        exponentiate: bool = False,
        conf_int: bool = False,
        level: float = 0.95,
        digits: int = 2,
    ) -> str:
        """Return the fixed effects as a table in Markdown.

        Parameters
        ----------
        exponentiate, conf_int, level, digits :
            As of :meth:`to_frame`.

        Returns
        -------
        table : str
        """
        options = exponentiate, conf_int, level, digits
        head, *rows = self._printed_rows(_MARKDOWN, *options)
        line = [":--", *["--:"] * (len(head) - 1)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, line, *rows))

    def to_latex(
        self,
        *,
        exponentiate: bool = False,
        conf_int: bool = False,
        level: float = 0.95,
        digits: int = 2,
    ) -> str:
        """Return the fixed effects as a ``tabular`` of LaTeX, with rules of booktabs.

        Parameters
        ----------
        exponentiate, conf_int, level, digits :
            As of :meth:`to_frame`.

        Returns
        -------
        table : str
        """
        options = exponentiate, conf_int, level, digits
        rows = self._printed_rows(_LATEX, *options)
        head, *lines = (" & ".join(row) + r" \\" for row in rows)
        begin = rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
        parts = begin, r"\toprule", head, r"\midrule", *lines, r"\bottomrule"
        return "\n".join([*parts, r"\end{tabular}"])

    def _table(self):
        estimates, errors, z, p = self._columns().values()
        decimals = _decimals(errors)
        columns = (
            _aligned(estimates, decimals, 9),
            _aligned(errors, decimals, 10),
            _aligned(z, 2, 7),
            map(_print_p, p),
        )
        rows = list(zip(self.names, *columns))
        return LedgerTable(["Fixed effects", *self._columns()], rows)

    def _lines(self):
        yield f"{self.kind}, {self.n_rows:,.0f} rows of {self.n_parties} parties"
        if self.classes is not None:
            yield "y: {1!r} against {0!r}".format(*self.classes)
        if not np.isnan(self.log_likelihood):  # noise leaves none
            yield (
                f"log-likelihood {self.log_likelihood:.2f}, AIC {self.aic:.1f}, "
                f"BIC {self.bic:.1f}"
            )
        if self.components is not None:
            sizes = [f"{name} {n}" for name, n in self.n_clusters.items()]
            yield f"clusters: {', '.join(sizes)}"
            if self.singular:
                yield (
                    "boundary (singular) fit: a variance is zero, or effects are "
                    "perfectly correlated"
                )
        if not self.converged:
            yield "the search did not converge: do not rely on these numbers"

    def _tables(self):
        tables = [] if self.components is None else [self.components._table()]
        return [*tables, self._table()]

    def __str__(self):
        tables = [str(table) for table in self._tables()]
        return "\n\n".join(["\n".join(self._lines()), *tables])

    __repr__ = __str__

    def _repr_html_(self):
        lines = "<br>".join(self._lines())
        tables = "".join(table._repr_html_() for table in self._tables())
        return f"<p>{lines}</p>{tables}"


@dataclass(frozen=True)
class LikelihoodRatioTest:
    """Likelihood ratio test of two models, one of which is a special case of the other.

    Attributes
    ----------
    statistic : float
        Twice the difference of the log-likelihoods.
    n_restrictions : int
        How many parameters the smaller model lacks.
    p_value : float
    """

    statistic: float
    n_restrictions: int
    p_value: float

    def __str__(self):
        p = _print_p(self.p_value)
        return (
            f"Likelihood ratio test: chi-squared {self.statistic:.3f} on "
            f"{self.n_restrictions} degrees of freedom, p {p}"
        )

    __repr__ = __str__


def likelihood_ratio_test(smaller: Any, larger: Any) -> LikelihoodRatioTest:
    """Compare two fitted mixed models, as R's ``anova`` does.

    If a variance is zero in the smaller model, the test is conservative: zero is at the
    boundary, and the p value is too large (on average twice for one variance).

    Parameters
    ----------
    smaller, larger : estimator
        Fitted to the same rows; the first is a special case of the second.

    Returns
    -------
    test : LikelihoodRatioTest

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.mixed_model import PrivateGLMMRegressor, likelihood_ratio_test
    >>> rng = np.random.default_rng(0)
    >>> X, centre = rng.normal(size=(300, 2)), rng.integers(10, size=300)
    >>> y = X[:, 0] + rng.normal(size=10)[centre] + rng.normal(size=300)
    >>> party = rng.choice(["north", "south", "west"], size=300)
    >>> models = [
    ...     PrivateGLMMRegressor(reml=False).fit(rows, y, cluster=centre, party=party)
    ...     for rows in (X[:, 1:], X)
    ... ]
    >>> likelihood_ratio_test(*models).p_value < 0.001
    True
    """
    first, second = smaller.summary(), larger.summary()
    if first.n_rows != second.n_rows or type(smaller._family) is not type(
        larger._family
    ):
        raise ValueError("the models were fitted to different rows or families")
    restricted = [getattr(m, "reml", False) for m in (smaller, larger)]
    comparable = not any(restricted) or (
        all(restricted) and first.names == second.names
    )
    if smaller._family.name == "gaussian" and not comparable:
        raise ValueError(
            "restricted likelihoods (reml=True) of models with different fixed "
            "effects cannot be compared: fit with reml=False"
        )
    if np.isnan(first.log_likelihood + second.log_likelihood):
        raise ValueError(
            "the test needs log-likelihoods, which fits with epsilon do not have: use "
            "the standard errors of summary(), which include the noise"
        )
    n_restrictions = second.n_parameters - first.n_parameters
    if n_restrictions < 1:
        raise ValueError(
            f"smaller has {first.n_parameters} parameters and larger "
            f"{second.n_parameters}: give the smaller model first"
        )
    statistic = max(2 * (second.log_likelihood - first.log_likelihood), 0.0)
    return LikelihoodRatioTest(
        statistic, n_restrictions, float(chi2.sf(statistic, n_restrictions))
    )
