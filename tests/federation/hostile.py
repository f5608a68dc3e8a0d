"""A coordinator that says what no estimator would."""


class HostileTerms:
    """Terms whose fields are changed on their way to the parties."""

    def __init__(self, terms, **changes):
        self._terms, self._changes = terms, changes

    def __getattr__(self, name):
        return getattr(self._terms, name)

    def to_payload(self):
        return self._terms.to_payload() | self._changes

    def raised_to(self, limits):
        return self
