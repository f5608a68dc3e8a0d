"""How long to look: seconds in CI, the same every time; minutes by ``make fuzz``."""

import os

from hypothesis import HealthCheck, settings

_PROFILES = {
    # derandomised: CI fails for a change, not for luck
    "ci": settings(max_examples=10, derandomize=True, database=None),
    "fuzz": settings(max_examples=500, print_blob=True),
}


def fuzzed(share=1.0):
    """Return the settings of the profile that FUZZ_PROFILE names, "ci" by default.

    Parameters
    ----------
    share : float, default=1.0
        Of the profile's examples: less for what is slow, more for what is quick.
    """
    profile = _PROFILES[os.environ.get("FUZZ_PROFILE", "ci")]
    return settings(
        profile,
        max_examples=max(1, round(share * profile.max_examples)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
