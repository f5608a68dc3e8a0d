"""Which release saved a fitted estimator."""

import warnings
from typing import Any

from skprivbn import __version__
from skprivbn.exceptions import InconsistentVersionWarning

_KEY = "_skprivbn_version"


class SavedVersionMixin:
    """Puts the version into pickles, and warns if another release reads them.

    As scikit-learn does for its own estimators only. Releases that differ in their last
    number store fitted attributes in the same way.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), _KEY: __version__}  # type: ignore[dict-item]

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        # The first release did not write it.
        saved = state.pop(_KEY, "0.1")
        if saved.split(".")[:2] != __version__.split(".")[:2]:
            warnings.warn(
                InconsistentVersionWarning(
                    estimator_name=type(self).__name__,
                    current_sklearn_version=__version__,
                    original_sklearn_version=saved,
                ),
                stacklevel=2,
            )
        super().__setstate__(state)  # type: ignore[misc]
