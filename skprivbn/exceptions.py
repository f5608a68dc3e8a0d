"""Warnings and errors that mean the same in every estimator."""

from sklearn import exceptions

__all__ = [
    "BudgetExceededError",
    "InconsistentVersionWarning",
    "PartitionError",
    "PartyError",
    "PrivacyLeakWarning",
    "ProtocolError",
]


class PrivacyLeakWarning(UserWarning):
    """A fit discloses more than a careful user expects.

    Raised for choices that work but hide less than the default (a plaintext
    backend, bounds or domains read off the data, seeded noise, a single party)
    and for what the protocol cannot hide in the given situation.
    """


class InconsistentVersionWarning(exceptions.InconsistentVersionWarning):
    """A fitted estimator was saved by a release that may have stored it otherwise.

    Raised when a pickle is loaded. One filter serves this and scikit-learn's warning of
    the same name.
    """

    def __str__(self):
        saved = f"skprivbn {self.original_sklearn_version}"
        return (
            f"{self.estimator_name} was saved by {saved} and is loaded by "
            f"{self.current_sklearn_version}, which may read what was learnt "
            f"otherwise: fit it again, or load it with {saved}"
        )


class BudgetExceededError(RuntimeError):
    """A release would cost more privacy than the accountant has left."""


class PartitionError(ValueError):
    """A partition of rows or columns over parties is invalid or ambiguous."""


class ProtocolError(RuntimeError):
    """A message was malformed, out of turn, replayed or not authentic."""


class PartyError(RuntimeError):
    """A party failed, refused, or gave a late or malformed answer.

    Only a public code leaves a party: an exception's text may hold data.

    Parameters
    ----------
    party : str
        Name of the party.
    operation : str
        What it was asked to do.
    code : str
        Public reason, one of :data:`REASONS`.
    columns : tuple of str, default=()
        Columns that the reason is about, by the names that the site declares.
    words : str, default=""
        What a person at the site wrote to the researcher.
    """

    REASONS = {
        "failed": "its code raised an error (a site has the details in its own "
        "skprivbn_errors.log)",
        "timeout": "no answer arrived in time",
        "lost": "the server has no connection to it any more: its process has ended, "
        "or its network is down",
        "garbage": "its answer could not be decoded",
        "refused": "it refuses this operation now (out of turn, or not allowed there)",
        "not-allowed": "its site file does not allow this estimator or backend",
        "not-ready": "its site file or the policy of its kit cannot be used: people "
        "there find out why with 'site-policy --check', or in skprivbn_errors.log",
        "not-valid-now": "a certificate is not valid at its time: it has expired, or "
        "the site's clock is wrong",
        "unknown-peer": "its site file does not name all of these sites as its peers, "
        "or a certificate is not the one it names",
        "unknown-dataset": "it has no such dataset, or not with these columns, or not "
        "for this researcher",
        "pending": "a person there has to approve the question first, and has not yet: "
        "fit again later, which is the same question, or connect with approved_within=",
        "denied": "a person there has denied the question",
        "invalid-data": "its data do not fit what the estimator needs, or cannot be "
        "read (a site has the details in its own skprivbn_errors.log)",
        "gaps": "entries are missing, or infinite: fill them first (rows with "
        "FederatedSimpleImputer), or take missing='skip' where the estimator has it",
        "too-few-rows": "min_rows or min_cell_count: a number would be about fewer "
        "rows of all sites than the strictest of them allows (join levels with "
        "min_frequency=, or use epsilon=); or the site has fewer rows than its "
        "min_rows, or fewer values of a column with gaps, rows of a cluster or rows "
        "with a past",
        "few-common": "fewer than min_rows of its records are those of all others, "
        "too: are keys of the same records written alike (007 is not 7)?",
        "not-aligned": "it has another number of records than others, and without "
        "keys= records are aligned by their order: say keys= to align them by",
        "too-few-parties": "the roster is smaller than its minimum",
        "too-many-rounds": "the fit takes more rounds than its site file allows",
        "too-detailed": "a table would have more cells, or a model more parameters, "
        "than its site file allows for so many rows; or min_cell_count: few of its "
        "rows share a cell, category, cluster or bin, or lack an entry (join levels "
        "with min_frequency=, or use epsilon=)",
        "small-cells": "the fit shows rows, or adds up fractions of them, and its "
        "site file says min_cell_count: choose disclosure='private_counts' for "
        "columns, or FederatedBayesianNetwork without EM for rows, or have the site "
        "allow min_cell_count = 1",
        "unknown-step": "a transformer in front of an exact question, or the network "
        "of a score of columns, was not fitted to these columns with this site: fit it "
        "to the same rows (encoders may also have the labels that the site declares)",
        "other-roster": "another group of sites has asked these data exact questions: "
        "the difference of the answers would show one site's",
        "other-weights": "another column of weights was used in exact questions on "
        "these data: the difference of the answers would show the rows in which both "
        "differ (use that column, or epsilon)",
        "other-unit": "its budget counts epsilon for another unit of privacy (rows, "
        "individuals, or values of one record), which does not add up: fit with or "
        "without individual= as those before",
        "changed-little": "its data, or the records that it has in common with others, "
        "changed by fewer rows than its minimum since they were asked an exact "
        "question: the difference of the answers would show them (ask again when more "
        "have changed, or with epsilon= where the estimator has it)",
        "other-account": "its data were charged to another account, under another name "
        "of the dataset: its people are told what to do by site-policy --check",
        "cannot-record": "it cannot write down what it is asked (disk full, or no "
        "permission), and does nothing without",
        "busy": "another process there holds its records: ask again later",
        "too-large": "the parameters, or a message, ask for more memory than it gives",
        "not-authentic": "a message was not signed or sealed by whom it names",
        "inconsistent": "what the parties opened together cannot be counts or "
        "moments of their records: the part of some party is wrong, and nobody can "
        "tell whose",
        "out-of-range": "a value is too large for the secure sum's number format, or "
        "not finite",
        "budget-exceeded": "what it allows for these data (budget, max_exact_numbers, "
        "max_exact_fits, max_refusals, room for results) is used up, or less than this "
        "takes: ask for fewer numbers, or with a smaller epsilon= in the unit "
        "of privacy of its budget (rows, individuals, or values of one record)",
    }
    #: the same where the columns are known, which are then named first
    REASONS_OF_COLUMNS = {
        "invalid-data": "do not fit what the estimator needs: as labels, they have "
        "others than were declared, more than 256, or fractions (discretise them, or "
        "say states={name: 'continuous'} where the estimator has it)",
        "gaps": "have gaps: fill them first (rows with FederatedSimpleImputer), or "
        "take missing='skip' where the estimator has it",
        "too-few-rows": "have a level, several together, an outlier, or a difference "
        "that is about fewer rows of all sites than the strictest of them allows "
        "(min_rows, min_cell_count): join rare levels with a larger min_frequency= of "
        "an encoder, leave out columns of two levels or with outliers, have fewer "
        "parents (max_parents=), or use epsilon= where the estimator has it",
        "too-detailed": "have a level that few of its rows have, or are alike but for "
        "few rows (min_cell_count): join rare levels with a larger min_frequency= of "
        "an encoder (clusters: with map in the site files), leave out columns of two "
        "levels or one of those that are alike, or use epsilon= where the estimator "
        "has it",
    }

    #: messages without a name of their own
    STEPS = {"session.join": "join the fit", "next": "go on with the fit"}

    def __init__(
        self,
        party: str,
        operation: str,
        code: str,
        columns: tuple[str, ...] = (),
        words: str = "",
    ) -> None:
        self.party, self.operation, self.code = party, operation, code
        self.columns, self.words = columns, words
        super().__init__(party, operation, code, columns, words)

    def __str__(self):
        reason, names = self.REASONS.get(self.code, self.code), list(self.columns)
        if names and self.code in self.REASONS_OF_COLUMNS:
            reason = f"columns {names} {self.REASONS_OF_COLUMNS[self.code]}"
        elif names:
            reason = f"{reason}; columns {names}"
        if self.words:
            reason = f"{reason}. They write: {self.words}"
        did = self.STEPS.get(self.operation, f"complete {self.operation!r}")
        return f"party {self.party!r} did not {did}: {reason}"
