"""Learn Bayesian networks, graphical models and mixtures without pooling data.

Estimators for scikit-learn, for data that several parties hold and may not share:

- `structure`: who depends on whom, from columns or rows held apart;
- `bayesian_network`: networks as values: inference, sampling, files;
- `graphical_model`: undirected models under differential privacy;
- `mixture`: Gaussian mixtures by encrypted EM;
- `mixed_model`: linear, logistic and Poisson regression with random effects;
- `preprocessing`: scaling, projection and binning by secure sums.

Under them: `programs` (conversations that they share), `partition` (who holds what),
`federation` (who says what), `crypto` (how it is hidden), `privacy` (how much leaks).
Beside them: `datasets`, `metrics`, `inspection`.

The headline estimators can be imported from here.
"""

from importlib import import_module

__version__ = "0.3.0.dev0"

# Imported on first use: the ciphers behind them take longer to load than the rest.
_HOMES = {
    "CollectiveBayesianNetwork": "structure",
    "DPCGMLearner": "graphical_model",
    "FederatedBayesianNetwork": "structure",
    "FederatedGaussianBayesianNetwork": "structure",
    "FederatedNotearsADMM": "structure",
    "PPEMGaussianMixture": "mixture",
    "PrivateGLMMClassifier": "mixed_model",
    "PrivateGLMMRegressor": "mixed_model",
    "PrivateK2StructureLearner": "structure",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name):
    if name in _HOMES:
        return getattr(import_module(f"skprivbn.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*globals(), *_HOMES]
