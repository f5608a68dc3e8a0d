"""Complete, encode, scale, project and bin rows of several parties."""

from skprivbn.preprocessing._discretizer import FederatedKBinsDiscretizer
from skprivbn.preprocessing._encoders import (
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
)
from skprivbn.preprocessing._imputer import FederatedSimpleImputer
from skprivbn.preprocessing._pca import FederatedPCA
from skprivbn.preprocessing._scaler import FederatedStandardScaler

__all__ = [
    "FederatedKBinsDiscretizer",
    "FederatedOneHotEncoder",
    "FederatedOrdinalEncoder",
    "FederatedPCA",
    "FederatedSimpleImputer",
    "FederatedStandardScaler",
]
