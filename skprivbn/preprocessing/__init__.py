"""Scale, project and bin rows of several parties; each sums under the backend."""

from skprivbn.preprocessing._discretizer import FederatedKBinsDiscretizer
from skprivbn.preprocessing._pca import FederatedPCA
from skprivbn.preprocessing._scaler import FederatedStandardScaler

__all__ = ["FederatedKBinsDiscretizer", "FederatedPCA", "FederatedStandardScaler"]
