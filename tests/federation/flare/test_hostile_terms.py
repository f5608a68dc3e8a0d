"""Terms of a session that a site does not accept, whatever its file allows."""

import pytest

from skprivbn.crypto import PaillierBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation._session import Agreement
from skprivbn.federation._site_host import has_weak_keys
from skprivbn.mixed_model import PrivateGLMM
from skprivbn.mixture import PPEMGaussianMixture
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.flare.loopback import connect, make_sites


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_a_site_takes_no_part_under_a_key_that_can_be_factored(tmp_path):
    write_tables(tmp_path, *make_rows())
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b"])
    weak = PaillierBackend(key_size=512, insecure_test_key=True)
    with pytest.raises(PartyError) as caught:
        PPEMGaussianMixture(2, backend=weak).fit(rows)
    assert caught.value.code == "not-allowed"


@pytest.mark.parametrize("weak", [False, True])
def test_keys_of_counts_are_looked_at_too(weak):
    parameters = {"key_size": 512 if weak else 2048, "insecure_test_key": weak}
    agreement = Agreement(
        {
            "session": bytes(16),
            "roster": ["a", "b"],
            "protocol": "module:Party",
            "settings": {"backend": "paillier", "backend_parameters": parameters},
            "backend": {"name": "no sums", "parameters": {}},
            "data": {},
        }
    )
    assert has_weak_keys(agreement) == weak


def test_values_of_a_column_are_not_told_as_names_of_clusters(tmp_path):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    rows = federation.rows(["a", "b"])
    with pytest.raises(PartyError) as caught:
        PrivateGLMM().fit(rows, y="died", cluster="died")
    assert caught.value.code == "unknown-dataset"
