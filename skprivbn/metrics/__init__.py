"""Scores of learnt graphs and distributions against the true ones."""

from skprivbn.metrics._distances import (
    conditional_kl_divergence,
    cpdag_distance,
    false_discovery_rate,
    kl_divergence,
    skeleton_f1,
    structural_hamming_distance,
    true_positive_rate,
)

__all__ = [
    "conditional_kl_divergence",
    "cpdag_distance",
    "false_discovery_rate",
    "kl_divergence",
    "skeleton_f1",
    "structural_hamming_distance",
    "true_positive_rate",
]
