"""A page for the steward of one site: what is asked, what was spent, what happened.

It is served to the machine it runs on, to whoever has the address with its token. It
shows what was asked and told, and never a value of the data.
"""

from skprivbn.federation.site.console._app import make_app, serve

__all__ = ["make_app", "serve"]
