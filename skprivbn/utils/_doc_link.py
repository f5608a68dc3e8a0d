"""Where the HTML display of an estimator finds its documentation."""

import os

__all__ = ["DocLinkMixin"]


class DocLinkMixin:
    """Links an estimator's display to its page, where the documentation is served.

    The documentation has no public address. Whoever builds and serves it says where
    by the environment variable ``SKPRIVBN_DOC_URL``; without, there is no link.
    """

    _doc_link_module = "skprivbn"

    @property
    def _doc_link_template(self):
        address = os.environ.get("SKPRIVBN_DOC_URL", "").rstrip("/")
        page = "/api/generated/{estimator_module}.{estimator_name}.html"
        return address + page if address else ""
