"""What a learnt network, discrete or mixed, is to sites that apply it."""

from skprivbn.base import RowsMixin
from skprivbn.bayesian_network import (
    BayesianNetwork,
    ConditionalGaussianBayesianNetwork,
)
from skprivbn.structure._learnt import DiscreteNetworkMixin


class RowNetworkMixin(DiscreteNetworkMixin):
    """Likelihood, completion and sampling through the fitted `network_`."""

    def _add_scores(self, X, sample_weight=None, **beside):
        # what is learnt from rows is scored on rows, not on columns of parties
        return RowsMixin._add_scores(self, X, sample_weight, **beside)

    def _public_model(self):
        if isinstance(self.network_, BayesianNetwork):
            return super()._public_model()
        network = self.network_
        fields = ("states", "parents", "cpts", "intercepts", "weights", "variances")
        return {"nodes": list(network.nodes)} | {
            name: {
                node: list(value) if name in ("states", "parents") else value
                for node, value in getattr(network, name).items()
            }
            for name in fields
        }

    @classmethod
    def _public_model_memory(cls, model, n_features):
        states = model["states"]
        labels = states.values() if isinstance(states, dict) else states
        return sum(map(len, labels)) + n_features, 0

    @classmethod
    def _from_public_model(cls, model, n_features):
        if "variances" not in model:
            return super()._from_public_model(model, n_features)
        estimator = cls()
        estimator.network_ = ConditionalGaussianBayesianNetwork(**model)
        if len(estimator.network_.nodes) != n_features:
            raise ValueError("the network is about other columns")
        return estimator
