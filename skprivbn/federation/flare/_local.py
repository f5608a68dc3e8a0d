"""A whole federation on this machine: for demonstrations, tests and benchmarks.

Server and sites are separate processes that talk over loopback with mutual TLS, set
up with the same commands that organisations use.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from skprivbn.federation.flare._connect import FlareFederation
from skprivbn.federation.flare._policy import SITE_FILE, make_kits
from skprivbn.utils import import_optional

_ADMIN = "scientist@demo.org"


class LocalFederation:
    """Provision, start and stop a server and sites on loopback.

    Use as a context manager. Every process is ended by its own identifier, also when
    this one is told to end (SIGTERM).

    Parameters
    ----------
    folder : path-like
        Where kits, logs and jobs go; should be empty.
    site_files : dict of str to str
        Text of the site file of each site, by the site's name.

    Attributes
    ----------
    kits : dict of str to Path
        Startup kits of the sites, of ``"server"`` and of ``"admin"``.
    processes : dict of str to Popen
        What runs, by the same names.
    """

    def __init__(self, folder, site_files):
        self.folder = Path(folder).resolve()
        self.site_files = dict(site_files)
        self.kits, self.processes = {}, {}
        self._on_term = None

    def __enter__(self):
        import_optional("nvflare", "LocalFederation")
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):
            # without, this process ends at once and leaves the others behind
            self._on_term = signal.signal(signal.SIGTERM, _exit)
        try:
            self.provision()
            for name in ["server", *self.site_files]:
                self.start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.stop()

    def provision(self):
        """Make the startup kits, restrict them and put the site files in place."""
        port, admin_port = free_ports(2)
        made = make_kits(
            self.folder,
            "skprivbn_local",
            "localhost",
            list(self.site_files),
            [_ADMIN],
            port,
            admin_port,
        )
        self.kits = {name: made / name for name in self.site_files}
        self.kits |= {"server": made / "localhost", "admin": made / _ADMIN}
        for name, text in self.site_files.items():
            (self.kits[name] / "local" / SITE_FILE).write_text(text)

    def start(self, name):
        """Start the server or a site.

        Parameters
        ----------
        name : str
            ``"server"`` or the name of a site.
        """
        kit = self.kits[name]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with open(kit / "console.txt", "a") as console:
            self.processes[name] = subprocess.Popen(
                ["bash", str(kit / "startup" / "sub_start.sh"), "--once"],
                cwd=kit,
                env={**os.environ, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def connect(self, dataset, **options):
        """Open a session, as soon as all sites are there.

        Parameters
        ----------
        dataset : str
        **options
            Of :meth:`FlareFederation.connect`.

        Returns
        -------
        federation : FlareFederation
        """
        options = {"sites": sorted(self.site_files), **options}
        deadline = time.monotonic() + options.get("ready_within", 60.0)
        while True:
            try:
                return FlareFederation.connect(self.kits["admin"], dataset, **options)
            except ConnectionError:
                # The server takes some seconds until it listens.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def family(self, name):
        """Return the process of the server or a site and those of the jobs it runs.

        Jobs run in process groups of their own, and outlive a parent that is killed.
        """
        psutil = import_optional("psutil", "LocalFederation")
        try:
            parent = psutil.Process(self.processes[name].pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def signal(self, name, number):
        """Send a signal to the server or a site, and to the jobs that it runs."""
        _send(self.family(name), number)

    def stop(self):
        """End every process that was started."""
        if self._on_term is not None:
            signal.signal(signal.SIGTERM, self._on_term)
            self._on_term = None
        members = [member for name in self.processes for member in self.family(name)]
        _send(members, signal.SIGCONT)
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + 5.0
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.1))
        _send(members, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        import_optional("psutil", "LocalFederation").wait_procs(members, timeout=5.0)
        self.processes = {}


def _exit(number, frame):
    sys.exit(128 + number)


def _send(members, number):
    psutil = import_optional("psutil", "LocalFederation")
    for member in members:
        # A member knows when it was started: its number is not somebody else's now.
        with suppress(psutil.NoSuchProcess):
            member.send_signal(number)


def free_ports(n):
    """Return ports of this machine that nobody listens on now."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
