"""What has been renamed since the golden results were computed."""

#: old name: new one, or None for what is gone. Names are those of estimators, of their
#: parameters and attributes ("Estimator.name", or "name" wherever it occurs)
RENAMED: dict[str, str | None] = {}
