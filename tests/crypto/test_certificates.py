"""Vouchers: only the named site's certificate, of the own root, valid, for this job."""

import datetime

import pytest

from skprivbn.crypto.certificates import check_voucher, vouch
from skprivbn.exceptions import ProtocolError
from tests.federation.site.loopback import Authority, pem

NOW = datetime.datetime.now(datetime.UTC)
IDENTITY = bytes(range(32))


@pytest.fixture(scope="module")
def authority():
    return Authority()


def check(voucher, authority, name="north", job="job", now=NOW):
    return check_voucher(voucher, pem(authority.certificate), name, job, now)


def test_a_true_voucher(authority):
    voucher = vouch(*authority.issue("north"), IDENTITY, "job")
    assert check(voucher, authority) == IDENTITY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "south"}, "another site's"),
        ({"job": "other"}, "not signed by its certificate"),
        ({"now": NOW + datetime.timedelta(days=31)}, "not valid now"),
        ({"now": NOW - datetime.timedelta(days=61)}, "not valid now"),
    ],
)
def test_a_voucher_for_something_else(authority, options, message):
    voucher = vouch(*authority.issue("north"), IDENTITY, "job")
    with pytest.raises(ProtocolError, match=message):
        check(voucher, authority, **options)


def test_another_root_with_the_same_name(authority):
    voucher = vouch(*Authority().issue("north"), IDENTITY, "job")
    with pytest.raises(ProtocolError, match="not issued by the root"):
        check(voucher, authority)


def test_a_person_is_not_a_site(authority):
    voucher = vouch(*authority.issue("north", role="lead"), IDENTITY, "job")
    with pytest.raises(ProtocolError, match="a person's"):
        check(voucher, authority)


@pytest.mark.parametrize("field", ["identity", "signature"])
def test_changed_bytes(authority, field):
    voucher = vouch(*authority.issue("north"), IDENTITY, "job")
    changed = bytes([voucher[field][0] ^ 1]) + voucher[field][1:]
    with pytest.raises(ProtocolError, match="not signed"):
        check(voucher | {field: changed}, authority)


@pytest.mark.parametrize(
    "voucher",
    [None, {}, {"certificate": b"", "identity": b""}, {"identity": "text"}],
)
def test_malformed_vouchers(authority, voucher):
    with pytest.raises(ProtocolError, match="malformed"):
        check(voucher, authority)


def test_garbage_instead_of_a_certificate(authority):
    voucher = vouch(*authority.issue("north"), IDENTITY, "job")
    with pytest.raises(ProtocolError, match="cannot be read"):
        check(voucher | {"certificate": b"garbage"}, authority)
