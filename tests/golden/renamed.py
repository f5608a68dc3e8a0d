"""What has been renamed since the golden results were computed."""

#: old name or text: new one, or None for what is gone. Names are those of estimators,
#: of their parameters and attributes ("Estimator.name", or "name" wherever it occurs),
#: and of operations; texts are whole cells, notes and warnings of a ledger
RENAMED: dict[str, str | None] = {}

#: operations, by today's name, whose messages were given another size on purpose
OTHER_SIZES: set[str] = set()
