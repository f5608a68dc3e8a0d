"""Every variable a small neural network of the others (NOTEARS-MLP), in numpy.

Flat parameters: `n_hidden` maps of shape (d, d), where ``maps[m, i, j]`` leads from
variable i to hidden unit m of the network of variable j; then the hidden biases
(n_hidden, d), the output weights (n_hidden, d) and the output biases (d,).
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state

from skprivbn.bayesian_network._dag import topological_order
from skprivbn.federation import check_received


def n_free_of_mlp(n_variables, n_hidden):
    """Number of parameters that are not maps."""
    return (2 * n_hidden + 1) * n_variables


def initial_mlp(n_variables, n_hidden, random_state):
    """Small random parameters; hidden units would stay alike from zero."""
    rng = check_random_state(random_state)
    d, m = n_variables, n_hidden
    maps = rng.uniform(-0.1, 0.1, size=(m, d, d)) / np.sqrt(d)
    maps[:, np.arange(d), np.arange(d)] = 0.0
    output = rng.uniform(-1.0, 1.0, size=(m, d)) / np.sqrt(m)
    return np.concatenate([maps.ravel(), np.zeros(m * d), output.ravel(), np.zeros(d)])


def unpack_mlp(flat, d, n_hidden):
    """Return maps, hidden biases, output weights and output biases."""
    ends = n_hidden * d * d, n_hidden * d * (d + 1), n_hidden * d * (d + 2)
    return (
        flat[: ends[0]].reshape(n_hidden, d, d),
        flat[ends[0] : ends[1]].reshape(n_hidden, 1, d),
        flat[ends[1] : ends[2]].reshape(n_hidden, 1, d),
        flat[ends[2] :],
    )


def mlp_forward(X, flat, n_hidden):
    """Return the prediction of every variable from the others, shape (n, d)."""
    maps, bias, output, offset = unpack_mlp(flat, X.shape[1], n_hidden)
    total = np.tile(offset, (len(X), 1))
    for weights, shift, factor in zip(maps, bias, output):
        total += expit(X @ weights + shift) * factor
    return total


@dataclass(frozen=True)
class MLPNetwork:
    """A network whose variables are small neural networks of their parents.

    An immutable value with the methods of
    :class:`~skprivbn.bayesian_network.GaussianBayesianNetwork` that have a closed form
    for non-linear models: likelihood, sampling and prediction of complete rows.

    Parameters
    ----------
    nodes : tuple of str
        Names of the variables.
    adjacency_matrix : ndarray of bool of shape (d, d)
        Edges; weights of other pairs are cut.
    parameters : ndarray
        Flat parameters, for rows centred at `mean`.
    n_hidden : int
        Hidden units of every variable's network.
    mean : ndarray of shape (d,)
        Where rows were centred.
    intercepts : ndarray of shape (d,)
        Mean residuals, added to the predictions.
    variances : ndarray of shape (d,)
        Variances of the noise.
    """

    nodes: tuple
    adjacency_matrix: np.ndarray
    parameters: np.ndarray
    n_hidden: int
    mean: np.ndarray
    intercepts: np.ndarray
    variances: np.ndarray

    def to_dict(self):
        """Return the fields, in a form that travels."""
        return asdict(self) | {"nodes": list(self.nodes)}

    @classmethod
    def from_dict(cls, fields, n_variables):
        """Make a network of fields that somebody sent, if they fit together."""
        d, m = n_variables, fields["n_hidden"]
        if type(m) is not int or m < 1 or len(fields["nodes"]) != d:
            raise ValueError("not a network of these variables")
        n_parameters = m * d * d + n_free_of_mlp(d, m)
        means, variances = ("mean", "intercepts"), fields["variances"]
        if np.any(check_received(variances, (d,)) <= 0):
            raise ValueError("variances must be above zero")
        return cls(
            tuple(fields["nodes"]),
            check_received(fields["adjacency_matrix"], (d, d)),
            check_received(fields["parameters"], (n_parameters,)),
            m,
            *(check_received(fields[name], (d,)) for name in means),
            variances,
        )

    def predict(self, X):
        """Return the mean of every variable given its parents, shape (n, d)."""
        centred = np.asarray(X, dtype=float) - self.mean
        forward = mlp_forward(centred, self.parameters, self.n_hidden)
        return forward + self.mean + self.intercepts

    def log_likelihood(self, X):
        """Return the Gaussian log-density of every row."""
        standard = (np.asarray(X, dtype=float) - self.predict(X)) ** 2 / self.variances
        return -0.5 * (standard + np.log(2.0 * np.pi * self.variances)).sum(axis=1)

    def sample(self, n_samples=1, random_state=None):
        """Draw rows, parents first."""
        rng = check_random_state(random_state)
        noise = rng.standard_normal((n_samples, len(self.nodes)))
        noise *= np.sqrt(self.variances)
        X = np.tile(self.mean, (n_samples, 1))
        for j in topological_order(self.adjacency_matrix):
            X[:, j] = self.predict(X)[:, j] + noise[:, j]
        return X

    def to_networkx(self):
        """Return the graph as a ``networkx.DiGraph``."""
        from skprivbn.utils import import_optional

        networkx = import_optional("networkx", "MLPNetwork.to_networkx")
        graph = networkx.DiGraph()
        graph.add_nodes_from(self.nodes)
        edges = np.argwhere(self.adjacency_matrix)
        graph.add_edges_from((self.nodes[i], self.nodes[j]) for i, j in edges)
        return graph
