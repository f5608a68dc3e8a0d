"""Who is a site: only those that the site file names, by certificates of sites."""

import datetime

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skprivbn.crypto._ckks import _load
from skprivbn.crypto.certificates import _kind, check_voucher, fingerprint
from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation import decode
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._site import Site
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import SERVER, Authority, connect, make_sites

PEERS = 'peers = ["north", "south", "west"]'


@pytest.fixture
def hospitals(tmp_path):
    """Return a function that starts the server's holder as first of three sites."""
    X, ward, party, people = make_rows()
    write_tables(tmp_path, X, ward, party, people)
    (tmp_path / "west").rename(tmp_path / SERVER)

    def start(peers=PEERS):
        texts = site_files()
        texts = {SERVER: texts.pop("west")} | texts
        texts = {name: text.replace(PEERS, peers) for name, text in texts.items()}
        # a hostile site allows itself everything
        texts[SERVER] = texts[SERVER].replace(peers, f'peers = ["{SERVER}"]')
        sites = make_sites(tmp_path, texts)
        sites[SERVER]._meet = lambda vouchers: meet_anybody(sites[SERVER], vouchers)
        return sites

    return start, X[party == "north"]


def meet_anybody(site, vouchers):
    """Do what a site did before there were peers: believe any certificate."""
    site._host.pin({name: trust(site, name, of) for name, of in vouchers.items()})
    return {}


def trust(site, name, voucher):
    now = datetime.datetime.now(datetime.UTC)
    return check_voucher(voucher, site._root, name, site._job, now)


@pytest.mark.parametrize("peers", [PEERS, f'peers = ["north", "south", "{SERVER}"]'])
def test_the_servers_certificate_is_no_sites(hospitals, peers):
    start, _ = hospitals
    with pytest.raises(PartyError) as caught:
        connect(start(peers), "icu")
    assert (caught.value.party, caught.value.code) == ("north", "unknown-peer")


def test_it_would_make_the_key_and_read_one_hospital(hospitals, monkeypatch):
    # the twin: sites believe any certificate of the root
    start, rows = hospitals
    monkeypatch.setattr(Site, "_identity", trust)
    sites, parts, read = start(), [], []
    answer = sites["north"].answer

    def overhear(topic, message):
        reply = answer(topic, message)
        told = decode(reply).get("payload", {})
        if "vector" in told:
            parts.extend(told["vector"][2:])
        # the server has the key once it has hidden a vector of its own
        if len(parts) > 1 and not read:
            key, part = sites[SERVER]._host._sums["parties"], parts[0]
            slots = _load(part, key._parameters, key._context).decrypt()
            n_bits, n_digits = key._digits.n_bits, key._digits.n_digits
            digits = np.ldexp(slots, key._digits.fraction_bits).reshape(n_digits, -1)
            read.append(2.0 ** (n_bits * np.arange(n_digits) - 56) @ np.rint(digits))
        return reply

    sites["north"].answer = overhear
    model = PPEMGaussianMixture(1, backend="ckks")
    model.fit(connect(sites, "icu").rows(["a", "b"]))
    # numbers of entries, and sums, of both columns
    ((count, _, *sums),) = (values[:4] for values in read)
    np.testing.assert_allclose(np.array(sums) / count, rows.mean(axis=0), atol=1e-3)


def test_a_peer_that_the_file_does_not_name_is_refused(tmp_path, monkeypatch):
    write_tables(tmp_path, *make_rows())
    texts = site_files()
    texts["south"] = texts["south"].replace(PEERS, 'peers = ["north"]')
    with pytest.raises(PartyError, match="'south'.*does not name all"):
        connect(make_sites(tmp_path, texts), "icu")
    # the twin: believed because the root has issued its certificate
    monkeypatch.setattr(Site, "_identity", trust)
    connect(make_sites(tmp_path, texts), "icu")


def test_a_pinned_certificate_is_the_only_one(tmp_path):
    write_tables(tmp_path, *make_rows())
    authority, texts = Authority(), site_files()
    sites = make_sites(tmp_path, texts, authority)
    prints = {
        name: fingerprint(site._voucher["certificate"]) for name, site in sites.items()
    }
    pinned = ", ".join(f'{name} = "{text}"' for name, text in prints.items())
    path = tmp_path / "north" / "site.toml"
    path.write_text(texts["north"].replace(PEERS, f"peers = {{{pinned}}}"))
    sites["north"]._site_file = SiteFile.load(path)
    FederatedStandardScaler().fit(connect(sites, "icu").rows(["a"]))
    # another certificate of the same name and root, as whoever provisions can make
    again = make_sites(tmp_path, texts, authority)
    again["north"] = sites["north"]
    with pytest.raises(PartyError) as caught:
        connect(again, "icu")
    assert (caught.value.party, caught.value.code) == ("north", "unknown-peer")
    log = tmp_path / "north" / "skprivbn_errors.log"
    assert "has another certificate" in log.read_text()
    # the twin: names alone, which the other certificate has too
    path.write_text(texts["north"])
    sites["north"]._site_file = SiteFile.load(path)
    FederatedStandardScaler().fit(connect(again, "icu").rows(["a"]))


@pytest.mark.parametrize(
    "extension",
    [
        x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName([x509.DNSName("server.example.org")]),
        x509.BasicConstraints(ca=True, path_length=None),
    ],
)
def test_certificates_that_say_what_they_are(extension):
    now, key = (
        datetime.datetime.now(datetime.UTC),
        ec.generate_private_key(ec.SECP256R1()),
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "west")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(key, hashes.SHA256())
    )
    assert _kind(certificate) in ("server", "root")


@pytest.mark.parametrize(
    ("peers", "message"),
    [
        ("", "missing entries"),
        ('peers = "north"', "must be a list of names"),
        ('peers = {north = "abc"}', "64 hexadecimal"),
    ],
)
def test_wrong_peers_are_said(tmp_path, peers, message):
    path = tmp_path / "site.toml"
    path.write_text(site_files()["north"].replace(PEERS, peers))
    with pytest.raises(PartitionError, match=message):
        SiteFile.load(path)
