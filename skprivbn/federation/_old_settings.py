"""Protocols that still announce themselves by class methods and a dict."""

from dataclasses import asdict

from skprivbn.federation._party import PartyRefusal
from skprivbn.federation._terms import Terms
from skprivbn.privacy import distribute


class OldSettings:
    def __init__(self, party_class, settings):
        self._party_class, self._settings = party_class, settings

    def __getattr__(self, name):
        try:
            return self.__dict__["_settings"][name]
        except KeyError:
            raise AttributeError(name) from None

    def to_payload(self):
        return self._settings

    def raised_to(self, limits):
        settings = self._settings
        raised = {
            k: v
            for k, v in limits.items()
            if k in settings and (type(settings[k]) is not int or settings[k] < v)
        }
        if raised:
            return OldSettings(self._party_class, settings | raised)
        return self

    def rounds(self, n_parties):
        return None

    def memory(self, n_features):
        from skprivbn.federation.site._demands import check_demands

        for rule, least in {"max_iter": 0, "n_init": 1}.items():
            asked = self._settings.get(rule, least)
            if type(asked) is not int or asked < least:
                raise PartyRefusal("not-allowed")
        parameters = self._settings.get("backend_parameters", {})
        if parameters.get("insecure_test_key", False):
            raise PartyRefusal("not-allowed")
        check_demands(self._settings, self.models(), n_features)
        return 0, 0

    def _ask(self, name, default, *args):
        method = getattr(self._party_class, name, None)
        return default if method is None else method(self._settings, *args)

    def noise(self, n_features, n_parties):
        if "privacy_noise" not in vars(self._party_class):
            return None
        return self._ask("privacy_noise", None, n_features, n_parties)

    def shows_rows(self):
        return self._ask("shows_rows", False)

    def survives_losses(self):
        return self._ask("survives_losses", False)

    def for_tests_only(self):
        return False

    def models(self):
        return self._ask("models", [])

    def keeps_results(self):
        return None


def terms_of(party_class, payload):
    if party_class.terms in (None, Terms) and payload:
        return OldSettings(party_class, payload)
    return party_class.terms.from_payload(payload)


def check_noise(given, mechanism, n_parties):
    min_honest = given["min_honest"]
    if 2 * min_honest > n_parties + 1:
        raise PartyRefusal("refused")
    expected = distribute(mechanism, n_parties, min_honest)
    if given != asdict(expected):
        raise PartyRefusal("refused")
    return expected
