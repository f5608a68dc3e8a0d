"""What has been renamed since the golden results were computed."""

_LABELS = (
    "which classes and, unless all are given, clusters it holds; its number of rows, "
    "sums and absolute sums of each feature"
)
_NEW_LABELS = (
    "which classes and, unless all are given, clusters it holds (if small ones are "
    "pooled, those of few rows of a site as one); its number of rows, sums and "
    "absolute sums of each feature, and of the offset"
)
#: old name or text: new one, or None for what is gone. Names are those of estimators,
#: of their parameters and attributes ("Estimator.name", or "name" wherever it occurs),
#: and of operations; texts are whole cells, notes and warnings of a ledger
RENAMED: dict[str, str | None] = {
    "CollectiveBayesianNetwork.search": "method",
    "DPCGMLearner.model_": "network_",
    "DPCGMLearner.n_records_": "n_samples_",
    "FederatedDynotears.lagged_adjacency_": "lagged_adjacency_matrix_",
    "FederatedGaussianBayesianNetwork.search": "method",
    "FederatedGaussianBayesianNetwork.search_": "method_",
    "FederatedNotearsADMM.model": "method",
    "FederatedNotearsADMM.scale_": "loss_scale_",
    "FederatedStandardScaler.n_samples_seen_": "n_samples_",
    "PrivateGLMM": "PrivateGLMMClassifier",
    "PrivateGLMM.coef_se_": "coef_std_",
    "PrivateGLMM.e_step": "method",
    "PrivateGLMM.intercept_se_": "intercept_std_",
    "PrivacyLeakWarning: method='non_private' learns from exact tables, without any "
    "privacy": "PrivacyLeakWarning: epsilon=None learns from exact tables, without any "
    "privacy",
    _LABELS: _NEW_LABELS,
    f"sum over parties of: {_LABELS}": f"sum over parties of: {_NEW_LABELS}",
}

#: operations, by today's name, whose messages were given another size on purpose
OTHER_SIZES: set[str] = {
    # it carries where a protocol stands in the package, and its terms
    "session.join",
    # sums are told in as many bytes as the largest needs: last digits decide on it
    "regress",
    "step",
}
