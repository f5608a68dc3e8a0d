"""The operator's guide, followed literally in a fresh folder."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from skprivbn.federation.flare._local import free_ports

GUIDE = Path(__file__).parents[3] / "doc" / "operators.rst"
SITES = ("north", "south", "west")

pytestmark = pytest.mark.slow


def snippets(text):
    """Yield (language, name, body) of every code block of a page, in order."""
    pattern = r"\.\. code-block:: (\w+)\n(?:   :name: (\S+)\n)?\n((?:    .*\n|\n)+)"
    for language, name, body in re.findall(pattern, text):
        yield language, name, dedent(body)


def write_stays(path, seed):
    rng = np.random.default_rng(seed)
    n = 80
    age, stays = rng.normal(60, 10, n), rng.normal(3, 1, n)
    died = np.where(age + rng.normal(0, 10, n) > 60, "yes", "no")
    ward = rng.choice(["surgery", "medicine"], n)
    lines = ["age,stays,died,ward,patient"]
    lines += [
        f"{a:.3f},{s:.3f},{d},{w},p{i}"
        for i, (a, s, d, w) in enumerate(zip(age, stays, died, ward))
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path):
    """A folder with an environment; whatever is started in it is ended."""
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    psutil = pytest.importorskip("psutil")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        script = tmp_path / "venv" / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        script.chmod(0o755)
    script = tmp_path / "venv" / "bin" / "nvflare"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nvflare.cli "$@"\n')
    script.chmod(0o755)
    yield tmp_path
    members = []
    for path in tmp_path.glob("kits/*/prod_00/*/*pid.fl"):
        with suppress(psutil.NoSuchProcess, ValueError):
            process = psutil.Process(int(path.read_text()))
            # the number may be another process's by now
            if str(tmp_path) in " ".join(process.cmdline() + [process.cwd()]):
                members += [process, *process.children(recursive=True)]
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.kill()


def run(command, folder):
    path = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # what goes into the background keeps its output: not a pipe that never ends
    with open(folder / "said.txt", "w+") as said:
        done = subprocess.run(
            command,
            shell=True,
            executable="/bin/bash",
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
        said.seek(0)
        text = said.read()
    assert done.returncode == 0, f"{command}\n{text}"
    return text


def test_every_snippet_runs(folder):
    port, admin_port = free_ports(2)
    said, kits = {}, folder / "kits" / "icu_study" / "prod_00"
    for language, name, body in snippets(GUIDE.read_text()):
        if name == "skprivbn_site.toml":
            for seed, site in enumerate(SITES):
                (kits / site / "local" / name).write_text(body)
                write_stays(kits / site / "local" / "stays.csv", seed)
        elif name:
            (folder / name).write_text(body)
            if language == "python":
                said[name] = run(f"python {name}", folder)
                # a fit waits for every site: a status before it may come too early
                status = [command for command in said if " status " in command][-1]
                said["status, later"] = run(status, folder)
        elif language == "console":
            for line in body.splitlines():
                command = line.removeprefix("$ ")
                command = command.replace("8002", str(port))
                command = command.replace("8003", str(admin_port))
                said[command] = run(command, folder)
    text = "\n".join(said.values())
    assert text.count("as strict as it must be") == 4
    # the second where the machine is faster than FLARE's script, which waits
    assert re.search("running as process|starting: ask again", text)
    assert "site west: heard of" in text
    assert "accepted" in said["fit.py"]
    assert "a trial run" in text
    assert "each follows from the one before" in text
    assert list((kits / "north" / "local" / "results").glob("*.csv"))
