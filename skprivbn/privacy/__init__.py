"""How much leaks: the privacy accountant, noise on integers, private searches."""

from skprivbn.privacy._accountant import PrivacyAccountant, check_accountant
from skprivbn.privacy._audit import AuditResult, audit_epsilon, audit_estimator
from skprivbn.privacy._composition import (
    PrivacyCost,
    Spend,
    composed_cost,
    public_delta,
    zcdp_epsilon,
)
from skprivbn.privacy._distributed import (
    DistributedNoise,
    discrete_gaussian_share,
    discrete_laplace_share,
    distribute,
)
from skprivbn.privacy._mechanisms import (
    CountMechanism,
    add_discrete_gaussian,
    add_discrete_laplace,
    discrete_gaussian_delta,
    discrete_gaussian_variance,
    discrete_laplace_variance,
    gaussian_epsilon,
    gaussian_sigma,
    laplace_scale,
)
from skprivbn.privacy._noise_report import NoiseReport, NoisyNumber
from skprivbn.privacy._scores import private_score
from skprivbn.privacy._search import PrivateSearchCV
from skprivbn.privacy._selection import LeavePublicGroupOut

__all__ = [
    "AuditResult",
    "CountMechanism",
    "DistributedNoise",
    "LeavePublicGroupOut",
    "NoiseReport",
    "NoisyNumber",
    "PrivacyAccountant",
    "PrivacyCost",
    "PrivateSearchCV",
    "Spend",
    "add_discrete_gaussian",
    "add_discrete_laplace",
    "audit_epsilon",
    "audit_estimator",
    "check_accountant",
    "composed_cost",
    "discrete_gaussian_delta",
    "discrete_gaussian_share",
    "discrete_gaussian_variance",
    "discrete_laplace_share",
    "discrete_laplace_variance",
    "distribute",
    "gaussian_epsilon",
    "gaussian_sigma",
    "laplace_scale",
    "private_score",
    "public_delta",
    "zcdp_epsilon",
]
