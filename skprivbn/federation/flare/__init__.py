"""Estimators on NVIDIA FLARE: real organisations, certificates, policies and logs."""

from skprivbn.federation.flare._connect import FlareFederation
from skprivbn.federation.flare._local import LocalFederation
from skprivbn.federation.flare._policy import check_kit, write_policy

__all__ = ["FlareFederation", "LocalFederation", "check_kit", "write_policy"]
