import pytest

from skprivbn.federation.flare import LocalFederation
from tests.federation.flare.hospitals import make_rows, site_files, write_tables


@pytest.fixture(scope="session")
def hospital_data():
    return make_rows()


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory, hospital_data):
    """A server and three sites, as processes of their own, over mutual TLS."""
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    folder = tmp_path_factory.mktemp("hospitals")
    write_tables(folder / "data", *hospital_data)
    files = site_files(path=folder / "data")
    with LocalFederation(folder / "federation", files) as local:
        yield local
