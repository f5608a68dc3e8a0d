"""Paragraphs that the docstrings of classifier and regressor have in common."""

from textwrap import indent

PARAGRAPHS = {
    "random effects": """\
slopes : list, dict of str to list, or None, default=None
    Features, by name or number, whose coefficients vary with the clusters. With
    several columns of cluster labels, a list for each: ``{"ward": ["age"]}``.
random_intercept : bool, default=True
    Whether intercepts vary, too, where there are slopes.
correlated : bool, default=True
    Whether random effects of the same clusters are correlated.
arrangement : {"nested", "crossed"}, default="nested"
    How several columns of cluster labels go together: labels of one column are
    read within those of the columns before it, or on their own (linear
    models only).
fit_intercept : bool, default=True
    Whether there is a fixed intercept.
""",
    "clusters": """\
clusters : array-like of labels, default=None
    All clusters there may be, as a public fact. If None, every party tells which
    clusters it holds.
min_parties : int, default=2
    Fewest holders of a cluster whose rows are spread over parties.
min_rows : int, default=5
    Fewest rows of such a cluster.
small_clusters : {"refuse", "pool"}, default="refuse"
    What to do with clusters below these limits: end the fit, or give all of them
    one random effect together, under the label "(other)".
release_effects : {"all", "shared"}, default="all"
    Which clusters' random effects become known: all, or only those whose rows
    are spread over parties. The effect of a cluster held by one party tells about
    the rows of that party alone.
backend : str or AdditiveBackend, default="masking"
    How sums are hidden: "masking", "ckks", "paillier" or "plaintext".
""",
    "fitted": """\
covariance_ : ndarray of shape (n_fixed, n_fixed)
    Sampling covariance of the intercept, if there is one, and coefficients.
factors_ : list of str
    Names of the columns of cluster labels.
clusters_ : ndarray of shape (n_clusters,), or dict of such
    Labels of the clusters; empty without random effects. By factor, as the
    following, if there are several.
effect_names_ : dict of str to list of str
    What varies with each factor: "(Intercept)" and slopes.
random_effects_ : ndarray of shape (n_clusters,) or (n_clusters, n_effects)
    Effects of each cluster given the estimates: posterior means by
    quadrature, else modes; NaN if withheld.
random_effects_std_ : ndarray, shaped like `random_effects_`
    Their standard deviations.
random_effect_scale_ : float or ndarray of shape (n_effects,)
    Standard deviations of the random effects; 0 without.
random_effect_covariance_ : dict of str to ndarray of shape (n_effects, n_effects)
    Covariance of the random effects of each factor.
log_likelihood_ : float
    Marginal log-likelihood at the estimates, restricted in linear models with
    `reml`.
converged_ : bool
    Whether the search ended by itself.
singular_ : bool
    Whether a variance is zero, or a correlation one, up to rounding.
n_samples_ : int
    Rows of all parties.
n_iter_ : int
    Number of iterations.
ledger_ : Ledger
    Every message of the last fit, and who learnt what.
n_features_in_ : int
    Number of columns.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Their names, if `X` has string names.
""",
}


def share_paragraphs(estimator: type) -> type:
    """Write common paragraphs where the docstring of an estimator names them.

    Parameters
    ----------
    estimator : type

    Returns
    -------
    estimator : type
    """
    for name, text in PARAGRAPHS.items():
        if estimator.__doc__ is not None:
            paragraph = indent(text, "    ")
            estimator.__doc__ = estimator.__doc__.replace(f"    <{name}>\n", paragraph)
    return estimator
