"""Identities that a site's certificate vouches for.

On a real federation every site has an X.509 certificate, issued by the root of its
project. A site signs its session identity with the certificate's key; its peers check
the certificate against the root and the site's name, so that a relay cannot hand out
identities of its own.
"""

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skprivbn.crypto._derive import join_fields
from skprivbn.exceptions import ProtocolError

__all__ = [
    "NotValidNowError",
    "check_certificate",
    "check_voucher",
    "fingerprint",
    "name_of",
    "validity",
    "vouch",
]


class NotValidNowError(ProtocolError):
    """A certificate has expired or is not valid yet, or a clock is wrong."""


_LABEL = b"skprivbn site identity"
_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)


def vouch(certificate, private_key, identity, job):
    """Sign a session identity with the key of a site's certificate.

    Parameters
    ----------
    certificate, private_key : bytes
        In PEM format, as in a startup kit.
    identity : bytes
        Public Ed25519 key of the session.
    job : str
        What the identity is for; a voucher for another job is not accepted.

    Returns
    -------
    voucher : dict
        Certificate, identity and signature; public.
    """
    name = _common_name(_load(certificate))
    message = join_fields(_LABEL, job, name, identity)
    key = serialization.load_pem_private_key(private_key, password=None)
    signature = key.sign(message, *_scheme(key))
    return {"certificate": certificate, "identity": identity, "signature": signature}


def check_voucher(voucher, root, name, job, now, holder="site"):
    """Return the identity that a voucher is for, or raise ProtocolError.

    Parameters
    ----------
    voucher : dict
        Of :func:`vouch`.
    root : bytes
        Certificate of the project's root, in PEM format, from the own startup kit.
    name : str
        The site, or person, that the voucher must be of.
    job : str
        What it must be for.
    now : datetime
        With time zone; certificates must be valid at this time.
    holder : {"site", "person"}, default="site"
        Who may hold such a certificate.

    Returns
    -------
    identity : bytes
    """
    if not isinstance(voucher, dict) or {
        key: type(value) for key, value in voucher.items()
    } != dict.fromkeys(("certificate", "identity", "signature"), bytes):
        raise ProtocolError("malformed voucher")
    certificate = check_certificate(voucher["certificate"], root)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise NotValidNowError("a certificate is not valid now")
    if _common_name(certificate) != name:
        raise ProtocolError("a certificate is another site's")
    if (found := _kind(certificate)) != holder:
        raise ProtocolError(f"a certificate is a {found}'s, not a {holder}'s")
    _check_signature(
        certificate.public_key(),
        voucher["signature"],
        join_fields(_LABEL, job, name, voucher["identity"]),
    )
    return voucher["identity"]


def name_of(certificate):
    """Return the common name in a certificate.

    Parameters
    ----------
    certificate : bytes
        In PEM format.

    Returns
    -------
    name : str
    """
    return _common_name(_load(certificate))


def check_certificate(certificate, root):
    """Return a certificate that the root has issued, or raise ProtocolError.

    Parameters
    ----------
    certificate, root : bytes
        In PEM format.

    Returns
    -------
    certificate : cryptography.x509.Certificate
    """
    certificate = _load(certificate)
    try:
        certificate.verify_directly_issued_by(_load(root))
    except (ValueError, TypeError, InvalidSignature):
        raise ProtocolError("a certificate was not issued by the root") from None
    return certificate


def validity(certificate):
    """Return the times, with time zone, between which a certificate in PEM is valid."""
    certificate = _load(certificate)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def fingerprint(certificate):
    """Return the SHA-256 fingerprint of a certificate, in hexadecimal digits.

    Parameters
    ----------
    certificate : bytes
        In PEM format.

    Returns
    -------
    fingerprint : str
    """
    return _load(certificate).fingerprint(hashes.SHA256()).hex()


def _kind(certificate):
    """Return who holds a certificate: a person, a server, a root or a site.

    People's (administrators') carry a role. A server's may say that it is one, or that
    it answers to other host names than its own; not all engines' do, so that sites
    know the server by its name, too.
    """
    if certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME):
        return "person"
    uses = _extension(certificate, x509.ExtendedKeyUsage) or ()
    hosts = _extension(certificate, x509.SubjectAlternativeName)
    hosts = [] if hosts is None else hosts.get_values_for_type(x509.DNSName)
    if ExtendedKeyUsageOID.SERVER_AUTH in uses or set(hosts) - {
        _common_name(certificate)
    }:
        return "server"
    basic = _extension(certificate, x509.BasicConstraints)
    return "root" if basic is not None and basic.ca else "site"


def _extension(certificate, kind):
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    except ValueError:
        raise ProtocolError("a certificate cannot be read") from None


def _scheme(key):
    """Return how keys of a kind sign, beside the message; both sides must agree."""
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return _PSS, hashes.SHA256()
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    return ()


def _check_signature(key, signature, message):
    try:
        key.verify(signature, message, *_scheme(key))
    except InvalidSignature:
        raise ProtocolError("a voucher is not signed by its certificate") from None


def _load(pem):
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ProtocolError("a certificate cannot be read") from None


def _common_name(certificate):
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise ProtocolError("a certificate needs exactly one common name")
    return names[0].value
