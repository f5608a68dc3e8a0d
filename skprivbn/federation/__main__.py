"""``python -m skprivbn.federation``: commands for owners of startup kits."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from skprivbn.exceptions import PartitionError
from skprivbn.federation.flare._health import (
    approvals_of,
    check_peers,
    describe_kit,
    list_jobs,
    look_at_certificate,
    look_at_kit,
    look_at_server,
    to_json,
)
from skprivbn.federation.flare._policy import (
    SITE_FILE,
    check_kit,
    kit_kind,
    make_kits,
    write_policy,
)
from skprivbn.federation.site._account import look_at_account
from skprivbn.federation.site._audit import format_record, read_audit
from skprivbn.federation.site._check import check_data, check_state, draft_site_file
from skprivbn.federation.site._file import SiteFile


def main(arguments=None):
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m skprivbn.federation", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(word, run, words, about=None, place="kit", whose=None):
        command = commands.add_parser(word, help=words, description=about)
        command.add_argument(place, type=Path, help=whose)
        command.set_defaults(run=run)
        return command.add_argument

    option = add(
        "site-policy",
        lambda said: _site_policy(said.kit, said.check),
        "restrict a startup kit of NVIDIA FLARE to this package's party code",
        "Write resources.json and authorization.json of a startup kit (a site's or the "
        "server's) so that no code can be shipped to it, no shell command run and no "
        "log leave it; then check them and the site file.",
        whose="folder of the startup kit",
    )
    option("--check", action="store_true", help="only check, change nothing")
    option = add(
        "audit",
        lambda said: _audit(said.file, said.last),
        "print the audit log of a site in plain words, and check that it is whole",
        "Print every question, its numbers that left the site, and its outcome. The "
        "exit code is 1 if a record was changed, removed or inserted.",
        "file",
        "a site's kit, or its local/skprivbn_audit.jsonl",
    )
    option("--last", type=int, help="number of records to print; default: all")
    add(
        "status",
        lambda said: _say(describe_kit(said.kit)),
        "show running processes and pending questions; an admin's kit: everywhere",
    )
    option = add("abort", _abort, "end a job that status lists", whose="an admin's")
    option("job")
    add("pending", _pending, "print the questions that wait for a person at the site")
    for word, status in (("approve", "approved"), ("deny", "denied")):
        option = add(word, partial(_answer, status), f"{word} a question that waits")
        option("question", help="its number, as pending prints it")
        option("--reason", default="", help="text that the researcher reads")
    add(
        "health",
        _health,
        "report the health of a site or the server as JSON, for monitoring",
        "Look at certificate, policy, process, server, site file, state and audit log; "
        "not at data. The exit code is 1 on a problem.",
    )
    option = add(
        "console",
        _console,
        "serve a page for the steward of a site, to this machine only",
        "Print an address with a token. Whoever has it sees questions that wait, "
        "budgets, the audit log, health and the site file, and may approve or refuse. "
        "No value of the data is shown.",
    )
    option("--port", type=int, default=0, help="any that is free if 0")
    option = add(
        "new-site",
        _new_site,
        "draft the site file from the data of a site",
        "Write a commented local/skprivbn_site.toml, for a person to read and correct. "
        "The draft permits noisy answers only, each after approval by a person.",
    )
    option("--data", help="CSV or Parquet file")
    option("--peers", nargs="+", help="names of all sites of the study")
    option("--name", default="data", help="name of the dataset")
    option("--epsilon", type=float, default=1.0, help="privacy budget")
    option = add(
        "new-study",
        _new_study,
        "make the startup kits of a server, sites and researchers",
        "Write project.yml, have NVIDIA FLARE issue certificates, and restrict the "
        "kits. Whoever runs this could impersonate everybody: give each participant "
        "their folder over a channel that you trust, and delete it here.",
        "folder",
        "new folder of the study",
    )
    option("--name", default="study")
    option("--server", required=True, help="name of the server's machine")
    option("--sites", nargs="+", required=True)
    option("--researchers", nargs="+", required=True, help="e-mail")
    option("--port", type=int, default=8002, help="for sites")
    option("--admin-port", type=int, default=8003, help="for researchers")
    options = parser.parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever reads has seen enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (PartitionError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def _say(lines):
    print("\n".join(lines))
    return 0


def _abort(options):
    list_jobs(options.kit, abort=options.job)
    return _say([f"job {options.job} was told to end"])


def _pending(options):
    waiting = approvals_of(options.kit).waiting()
    lines = []
    for number, question in waiting.items():
        lines.append(f"question {number}")
        lines.append(format_record(question))
    return _say(lines or ["no question waits"])


def _answer(status, options):
    approvals_of(options.kit).answer(options.question, status, options.reason)
    return _say([f"question {options.question} is {status}"])


def _new_site(options):
    path = options.kit / "local" / SITE_FILE
    if path.exists():
        raise PartitionError(f"there is a {path} already: move it away first")
    data = options.data or input("CSV or Parquet file with the rows: ")
    if not (path.parent / data).is_file() and Path(data).is_file():
        data = str(Path(data).resolve())  # not beside the site file, but here
    peers = options.peers or input("names of all sites, with spaces: ").split()
    text = draft_site_file(data, path.parent, peers, options.name, options.epsilon)
    path.write_text(text, encoding="utf-8")
    return _say([f"wrote {path}: read every line, then run site-policy --check"])


def _new_study(options):
    made = make_kits(
        options.folder.resolve(),
        options.name,
        options.server,
        options.sites,
        options.researchers,
        options.port,
        options.admin_port,
    )
    everybody = [options.server, *options.sites, *options.researchers]
    return _say([f"kit of {name}: {made / name}" for name in everybody])


def _health(options):
    findings = look_at_kit(options.kit)
    print(to_json(findings))
    return 0 if all(finding.is_well for finding in findings) else 1


def _console(options):
    # its framework need not be installed for the other commands
    from skprivbn.federation.site.console import serve

    if kit_kind(options.kit) != "client":
        raise PartitionError(
            f"{options.kit} is the server's kit: a console is a site's"
        )
    serve(options.kit, options.port, lambda address: print(address, flush=True))
    return 0


def _audit(path, n_last):
    if path.is_dir():
        path = SiteFile.load(path / "local" / SITE_FILE).audit_log
    if not path.exists():
        raise PartitionError(
            f"there is no {path}: nobody has asked anything yet, or it was taken away"
        )
    records, problems, last = read_audit(path)
    for record in records[-n_last:] if n_last else records:
        print(format_record(record))
    code = _judge(problems, f"{len(records)} records, each follows from the one before")
    print(f"hash of the last one: {last}")
    return code


def _judge(problems, praise):
    """Print problems, or praise if there are none; return the exit code."""
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    if not problems:
        print(praise)
    return 1 if problems else 0


def _site_policy(kit, check_only):
    kind = kit_kind(kit)
    if not check_only:
        for path in write_policy(kit):
            print(f"wrote {path}")
    problems = check_kit(kit)
    certificate = look_at_certificate(kit / "startup")
    if certificate.is_well:
        print(certificate.words)
    else:
        problems.append(certificate.words)
    if kind == "client":
        server = look_at_server(kit / "startup")
        if server.name == "kit":
            problems.append(server.words)
        else:
            # the server may be started later
            print(server.words if server.is_well else f"note: {server.words}")
        problems += _check_site_file(kit)
    return _judge(problems, f"the policy of {kit} is as strict as it must be")


def _check_site_file(kit):
    """Say what is wrong with a site file and the data that it names, locally."""
    contents = {}
    try:
        site_file = SiteFile.load(kit / "local" / SITE_FILE)
    except PartitionError as error:
        return [str(error)]
    problems = check_peers(kit, site_file)
    for name, dataset in site_file.datasets.items():
        print(
            f"dataset {name}: {len(dataset.columns)} columns of {dataset.source}, "
            f"{dataset.exact_words}, "
            + (
                "no noisy ones"
                if dataset.budget is None
                else f"noisy ones up to epsilon {dataset.budget[0]:g}"
            )
        )
        found, notes = check_data(dataset)
        found = found or check_state(dataset)
        for note in notes:
            print(f"note: {note}")
        problems += found
        if found:
            continue
        spent, _ = look_at_account(dataset)
        print(f"dataset {name}, {spent}")
        other = contents.setdefault(dataset.fingerprint(), dataset)
        if other.account != dataset.account:
            problems.append(
                f"datasets {other.name} and {name} are copies of one another, each "
                "with a budget of its own for the same people: name the same file"
            )
    return problems


if __name__ == "__main__":
    sys.exit(main())
