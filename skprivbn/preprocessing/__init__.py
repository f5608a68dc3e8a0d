"""Complete, encode, scale, project and bin rows of several parties."""

# not from deeper: CPython 3.11 maps memory at thousands of calls in deep imports
import sklearn  # noqa: F401

from skprivbn.preprocessing._discretizer import FederatedKBinsDiscretizer
from skprivbn.preprocessing._encoders import (
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
)
from skprivbn.preprocessing._imputer import FederatedSimpleImputer
from skprivbn.preprocessing._linear import FederatedPCA, FederatedStandardScaler

__all__ = [
    "FederatedKBinsDiscretizer",
    "FederatedOneHotEncoder",
    "FederatedOrdinalEncoder",
    "FederatedPCA",
    "FederatedSimpleImputer",
    "FederatedStandardScaler",
]
