"""Who may ask: researchers by certificate, dry runs, and people who decide."""

import os
import threading
from base64 import b64decode, b64encode

import numpy as np
import pytest

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation import decode, encode
from skprivbn.federation.__main__ import main
from skprivbn.federation.flare._messages import Researcher
from skprivbn.federation.site import _question
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._host import SiteHost
from skprivbn.federation.site._site import CONSIDER, JOIN, MESSAGE, Site
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import (
    LoopbackSession,
    audit,
    charges,
    connect,
    make_sites,
)
from tests.federation.site.test_block import take_any_steps

BUDGET = "budget = {epsilon = 9.0, delta = 1e-5}"


def start(tmp_path, rule="", only=None):
    write_tables(tmp_path, *make_rows())
    texts = site_files(budget=BUDGET)
    for name in [only] if only else texts:
        texts[name] = texts[name].replace("min_rows", f"{rule}\nmin_rows", 1)
    return make_sites(tmp_path, texts)


def scaler(epsilon=0.5):
    account = PrivacyAccountant(epsilon=99.0, delta=1e-3)
    return FederatedStandardScaler(
        epsilon=epsilon, delta=1e-6, bounds=(-5, 15), accountant=account
    )


def test_only_named_researchers_see_and_use_a_dataset(tmp_path):
    sites = start(tmp_path, 'researchers = ["ann@example.org"]')
    federation = connect(sites, "icu", who="ann@example.org")
    assert federation.datasets == ["broken", "icu", "people"]
    FederatedStandardScaler().fit(federation.rows(["a"]))
    assert audit(tmp_path, "north")[-2]["who"] == "ann@example.org"
    with pytest.raises(PartyError) as caught:
        connect(sites, "icu", who="bob@example.org")
    assert caught.value.code == "unknown-dataset"
    bob = connect(sites, "", who="bob@example.org")
    assert bob.datasets == ["broken", "people"]
    # he asks all the same
    ann = connect(sites, "icu", who="ann@example.org").rows(["a"])
    bob = connect(sites, "people", who="bob@example.org")
    ann._connection = bob
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(ann)
    assert caught.value.code == "unknown-dataset"


@pytest.mark.parametrize("role", [None, "lead"])
def test_a_researcher_is_a_person_of_the_projects(tmp_path, role):
    sites = start(tmp_path)
    authority = sites["north"].authority
    if role is None:  # a site, or the server, which has a certificate like a site's
        person = Researcher(*authority.issue("south"))
    else:
        person = Researcher(*type(authority)().issue("ann@example.org", role=role))
    federation = connect(sites, "icu")
    federation._researcher = person
    for site in sites.values():
        site._researcher = None
    with pytest.raises(PartyError) as caught:
        federation._introduce()
    assert caught.value.code == "not-authentic"


class Server(LoopbackSession):
    """A relay that asks for epsilon 5 where the researcher asked for 0.5."""

    def do_app_command(self, job_id, command, data):
        if data["topic"] == JOIN:
            bodies = []
            for body in data["bodies"]:
                message = decode(b64decode(body))
                request = decode(message["request"])
                request["payload"]["agreement"]["settings"]["epsilon"] = 5.0
                message["request"] = encode(request)
                bodies.append(b64encode(encode(message)).decode())
            data["bodies"] = bodies
        return super().do_app_command(job_id, command, data)


def test_the_server_cannot_ask_in_a_researchers_name(tmp_path, monkeypatch):
    sites = start(tmp_path)
    rows = connect(sites, "icu", Server).rows(["a"])
    with pytest.raises(PartyError) as caught:
        scaler().fit(rows)
    assert caught.value.code == "not-authentic"
    # the twin: questions that nobody has signed are answered
    monkeypatch.setattr(Site, "_signed", lambda self, request, signature: request)
    scaler().fit(rows)
    asked = [e for e in audit(tmp_path, "north") if e["event"] == "asked"]
    assert [entry["epsilon"] for entry in asked] == [5.0]


class UnsignedServer(LoopbackSession):
    """Asks as if the question had been accepted already."""

    def do_app_command(self, job_id, command, data):
        if data.get("topic") == JOIN:
            signed = [decode(b64decode(body)) for body in data["bodies"]]
            bodies = [b64encode(message["request"]).decode() for message in signed]
            data = data | {"topic": MESSAGE, "bodies": bodies}
        return super().do_app_command(job_id, command, data)


def test_attack_a_question_that_nobody_has_signed(tmp_path, monkeypatch):
    rows = connect(start(tmp_path), "icu", UnsignedServer).rows(["a"])
    with pytest.raises(PartyError) as caught:
        scaler().fit(rows)
    assert caught.value.code == "not-authentic"
    # the twin: any message may begin a session
    monkeypatch.setattr(SiteHost, "_check_signed", lambda self: None)
    scaler().fit(rows)


class DryRunner(LoopbackSession):
    """Considers other steps at two of three sites, between two steps of a session."""

    considered = None

    def do_app_command(self, job_id, command, data):
        answer = super().do_app_command(job_id, command, data)
        if data.get("topic") == CONSIDER:
            self.considered = data
        if data.get("topic") == JOIN and self.considered:
            sites = {k: v for k, v in self.considered["sites"].items() if k != "north"}
            asked = self.considered | {"sites": sites}
            self.codes = super().do_app_command(job_id, command, asked)["replies"]
        return answer


def scaled_by(scale):
    model = {"mean": np.zeros(1), "scale": np.array([scale])}
    made = FederatedStandardScaler._from_public_model(model, 1)
    made.n_features_in_ = 1
    return made


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_a_dry_run_during_a_session(tmp_path, monkeypatch):
    """What the others consider takes the place of what they have signed."""
    data = make_rows()
    take_any_steps(monkeypatch)
    federation = connect(start(tmp_path), "icu", DryRunner)

    def ask():
        # rows of the other sites are as good as nothing
        federation.dry_run(
            FederatedStandardScaler(), scaled_by(1e9).transform(federation.rows(["a"]))
        )
        rows = scaled_by(1.0).transform(federation.rows(["a"]))
        return FederatedStandardScaler().fit(rows).mean_[0]

    of_all = data[0][:, 0].mean()
    assert ask() == pytest.approx(of_all)
    session = federation._relay.session
    assert {decode(b64decode(r))["code"] for r in session.codes.values()} == {"refused"}
    # the twin, as it was: steps are those that were looked at last
    monkeypatch.setattr(SiteHost, "_check_idle", lambda self: None)
    monkeypatch.setattr(SiteHost, "_accept", _remember_steps(SiteHost._accept))
    of_north = data[0][data[2] == "north", 0].mean()
    assert ask() == pytest.approx(of_north / 3, abs=1e-6)


def _remember_steps(accept):
    def accept_and_remember(host, agreement):
        found = accept(host, agreement)
        if host._question is not None:
            vars(host._question)["steps"] = found.steps
        return found

    return accept_and_remember


def test_a_question_that_was_answered_is_not_asked_again(tmp_path):
    sites = start(tmp_path)
    federation = connect(sites, "icu")
    signed = []
    relay = federation._relay.ask

    def keep(topic, messages, timeout):
        if topic == JOIN:
            signed.append(messages)
        return relay(topic, messages, timeout)

    federation._relay.ask = keep
    scaler().fit(federation.rows(["a"]))
    (messages,) = signed
    assert decode(relay(JOIN, messages, 1.0)["north"])["code"] == "refused"


def test_a_dry_run_says_who_would_accept_and_what_would_leave(tmp_path):
    sites = start(tmp_path, 'backends = ["ckks"]', only="west")
    federation = connect(sites, "icu")
    rows = federation.rows(["a", "b"])
    report = federation.dry_run(scaler(), rows)
    assert report.answers == {
        "north": "accepted",
        "south": "accepted",
        "west": "not-allowed",
    }
    assert not report.is_accepted
    last = audit(tmp_path, "west")[-1]
    assert (last["event"], last["outcome"]) == ("refused", "not-allowed")
    assert (last["asked"], last["dataset"]) == ("dry run", "icu")
    assert report.epsilon == pytest.approx(0.5)
    assert "west: its site file does not allow" in str(report)
    (told,) = report.what_leaves()
    assert "noisy counts, sums" in told[1]
    assert "<table>" in report._repr_html_()
    exact = FederatedStandardScaler(backend="ckks")
    report = federation.dry_run(exact, rows)
    assert report.is_accepted
    assert report.epsilon is None
    assert "noisy" not in str(report.what_leaves())
    # nothing was charged or set aside
    for kind in ("exact", "noisy"):
        assert charges(tmp_path, "north", kind) == []
    assert audit(tmp_path, "north")[-1]["event"] == "considered"
    assert "min_cell_count" in str(federation.rules())


def kit_of(tmp_path, name):
    """Make the folder of a site look like its kit."""
    local = tmp_path / name / "local"
    local.mkdir()
    text = (tmp_path / name / "site.toml").read_text()
    text = text.replace('"stays.csv"', '"../stays.csv"')
    text = text.replace(
        "min_parties",
        'audit_log = "../skprivbn_audit.jsonl"\nstate = "../skprivbn_state"\n'
        "min_parties",
        1,
    )
    (local / "skprivbn_site.toml").write_text(text)
    return tmp_path / name


def test_a_person_at_the_site_decides(tmp_path, capsys):
    sites = start(tmp_path, 'approve = "ask"', only="west")
    kit = kit_of(tmp_path, "west")
    rows = connect(sites, "icu", who="ann@example.org").rows(["a"])
    model = scaler()
    with pytest.raises(PartyError, match="'west'.*has to approve"):
        model.fit(rows)
    assert main(["pending", str(kit)]) == 0
    printed = capsys.readouterr().out
    assert "ann@example.org asks for" in printed
    assert "epsilon 0.5" in printed
    (leaves,) = [line for line in printed.splitlines() if "may leave" in line]
    assert "(secure sum with noise, read by the researcher" in leaves
    number = printed.split()[1]
    assert main(["deny", str(kit), number]) == 0
    with pytest.raises(PartyError, match="'west'.*has denied"):
        model.fit(rows)
    assert main(["approve", str(kit), number]) == 0
    model.fit(rows)
    # once
    with pytest.raises(PartyError, match="'west'.*has to approve"):
        model.fit(rows)
    assert main(["approve", str(kit), "nothing"]) == 2
    assert "no question 'nothing' waits" in capsys.readouterr().err


@pytest.mark.parametrize("is_compared", [True, False])
def test_a_question_with_the_number_of_another(
    tmp_path, capsys, monkeypatch, is_compared
):
    # numbers are short: whoever asks can find two questions that share one
    digest = _question._digest

    def same_number(question, who):
        return "0" * _question.N_DIGITS + is_compared * digest(question, who)

    monkeypatch.setattr(_question, "_digest", same_number)
    sites = start(tmp_path, 'approve = "ask"', only="west")
    kit = kit_of(tmp_path, "west")
    rows = connect(sites, "icu").rows(["a"])
    harmless, other = scaler(), scaler().set_params(epsilon=4.0)
    with pytest.raises(PartyError, match="'west'.*has to approve"):
        harmless.fit(rows)
    assert main(["approve", str(kit), "0" * _question.N_DIGITS]) == 0
    if is_compared:
        with pytest.raises(PartyError, match="'west'.*has denied"):
            other.fit(rows)
    else:
        # the twin: numbers are all that is compared
        other.fit(rows)


def test_who_asks_writes_no_lines_of_their_own(tmp_path, capsys):
    sites = start(tmp_path, 'approve = "ask"', only="west")
    kit = kit_of(tmp_path, "west")
    forged = "care\nquestion 000000000000\n\x1b[2J2026-11-17  ann asks\u202e"
    rows = connect(sites, "icu").rows(["a"])
    rows._connection.purpose = forged
    with pytest.raises(PartyError, match="'west'.*has to approve"):
        scaler().fit(rows)
    assert main(["pending", str(kit)]) == 0
    printed = capsys.readouterr().out
    assert "care\\nquestion" in printed
    assert len([line for line in printed.splitlines() if "question" in line]) == 2
    assert all(char.isprintable() for char in printed.replace("\n", ""))
    # the twin: as it is, it looks like another question
    assert "\nquestion 000000000000\n" in f"purpose  {forged}"


def test_a_fit_waits_for_the_answer(tmp_path, capsys):
    sites = start(tmp_path, 'approve = "ask"', only="west")
    kit = kit_of(tmp_path, "west")
    federation = connect(sites, "icu", approved_within=30.0)
    rows = federation.rows(["a"])

    def approve():
        from skprivbn.federation.flare._health import approvals_of

        while not (waiting := approvals_of(kit).waiting()):
            pass
        approvals_of(kit).answer(*waiting, "approved")

    person = threading.Thread(target=approve)
    person.start()
    assert scaler().fit(rows).n_features_in_ == 1
    person.join()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('researchers = "ann"', "researchers must be a list"),
        ('approve = "never"', "approve must be"),
    ],
)
def test_wrong_entries_are_said(tmp_path, rule, message):
    path = tmp_path / "site.toml"
    text = site_files()["north"].replace("min_rows", f"{rule}\nmin_rows", 1)
    path.write_text(text)
    with pytest.raises(PartitionError, match=message):
        SiteFile.load(path)


def test_status_of_a_site(tmp_path, capsys):
    sites = start(tmp_path)
    kit = kit_of(tmp_path, "north")
    scaler().fit(connect(sites, "icu").rows(["a"]))
    assert main(["status", str(kit)]) == 0
    printed = capsys.readouterr().out
    assert "not running" in printed
    # counted at the budget's delta, which is larger than the fit's
    assert "epsilon 0.474 of 9 spent" in printed
    assert "questions that wait for approval: 0" in printed
    assert "more days" in printed
    # FLARE's script names itself, and some seconds later the site
    for name, said in (("daemon_pid.fl", "starting: ask"), ("pid.fl", "running as")):
        (kit / name).write_text(str(os.getpid()))
        assert main(["status", str(kit)]) == 0
        assert said in capsys.readouterr().out
    assert main(["status", str(tmp_path)]) == 2
    assert main(["audit", str(kit)]) == 0
    assert "each follows from the one before" in capsys.readouterr().out
