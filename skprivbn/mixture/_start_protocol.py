"""How PPEM starts: first responsibilities.

After the survey (`_survey_protocol`) each party gives its rows first responsibilities,
in one of several ways. An M-step over all parties (`_em_protocol`) makes a mixture of
them.

Where the coordinator reads sums, the parties first add up among themselves how many
rows each cluster or component describes, and tell nothing of those with too few.

Of a column that few rows of a component have, its parameters would tell as much as of a
component of few rows: both are counted alike.
"""

import numpy as np

from skprivbn.federation import (
    PartyRefusal,
    check_like,
    map_rows,
    operation,
    row_blocks,
    sum_over_rows,
)
from skprivbn.federation._rows import paired_blocks
from skprivbn.mixture._gaps import entries_seen, fill_with_zeros
from skprivbn.mixture._gaussian_steps import (
    IllDefinedCovarianceError,
    local_statistics,
)
from skprivbn.mixture._seeding import (
    cluster_sums,
    few_moved,
    local_clusters,
    local_components,
    merge_centroids,
    move_centres,
    nearest,
    one_hot,
    random_responsibilities,
    secret_responsibilities,
    stay_untold,
)
from skprivbn.mixture._survey_protocol import (
    CONVERGED,
    GO_ON,
    SurveyParty,
    unanimous,
)
from skprivbn.mixture._terms import MAX_LLOYD_ROUNDS

ILL_DEFINED, SMALL, TOO_FEW_CENTROIDS = "ill-defined", "small", "too few centroids"

#: of so many of its rows a party makes clusters to start from; all rows move them later
MAX_START_ROWS = 1 << 17
#: a hidden vector, and beside it whether to go on
SUMS_AND_STATUS = {"vector": dict, "status": str}


class StartParty(SurveyParty):
    """A data holder, up to the sums of which the first mixture is made."""

    def _start_operations(self):
        self.status = GO_ON
        start = self.terms.init_params
        if start == "given":
            yield "begin_given"
            return
        if start in ("kmeans", "local_em"):
            yield "share_centroids"
            yield "assign"
        elif start in ("k-means++", "random_from_data"):
            yield "choose_rows"
        if start == "kmeans":
            yield from self._move_operations()
        elif self._counts_first:
            yield "component_sizes"
        if start != "kmeans" or self._counts_first:
            yield "start"
        if self.status != SMALL:
            yield "begin"

    def _move_operations(self):
        """Move centres until they rest; the last sums are the first of EM."""
        first = "cluster_sizes" if self._counts_first else "cluster_sums"
        yield first
        while self.status == GO_ON:
            if self._counts_first:
                yield "cluster_sums"
            yield first
        self.status = GO_ON

    @property
    def _random_state(self):
        """This party's random numbers for the start; the first party's are the seed's.

        They decide nothing but where the search begins.
        """
        own = self.context.roster.index(self.name)
        seed = self.terms.seeds[self.n_runs]
        return np.random.RandomState(seed if own == 0 else [seed, own])

    @operation(
        peers="centres and sizes of every other party's clusters of min_rows rows "
        "or more",
        peers_kind="plaintext aggregate",
    )
    def share_centroids(self):
        self.n_moves, self.clusters_summed = 0, False
        centroids, sizes, members = self._own_clusters()
        least = 1 if self._alone else self.terms.min_rows
        big = sizes >= least
        if self.terms.has_gaps:
            seen = sum(
                entries_seen(rows, members(filled))
                for rows, filled in zip(row_blocks(self.rows), row_blocks(self.filled))
            )
            centroids = np.where(seen < least, 0.0, centroids)
        if self._alone:
            # as GaussianMixture: also with fewer distinct rows than components
            self.centres = centroids
            return
        # Filled up, so that whoever carries it does not see how many there are.
        n_missing = self.terms.n_components - np.count_nonzero(big)
        mine = {
            "centroids": np.pad(centroids[big], [(0, n_missing), (0, 0)]),
            "sizes": np.pad(sizes[big], (0, n_missing)),
        }
        received = yield from self._tell_peers(mine)
        shared = [received[name] for name in self.context.roster]
        centroids = np.vstack([piece["centroids"] for piece in shared])
        sizes = np.concatenate([piece["sizes"] for piece in shared])
        centroids, sizes = centroids[sizes > 0], sizes[sizes > 0]
        self.centres = None
        if len(centroids) >= self.terms.n_components:
            self.centres = merge_centroids(
                centroids,
                sizes,
                self.terms.n_components,
                self.terms.seeds[self.n_runs],
            )

    def _own_clusters(self):
        """Cluster the own rows, by k-means or by a mixture of one's own.

        Returns
        -------
        centroids : ndarray of shape (n_clusters, n_features)
        sizes : ndarray of shape (n_clusters,)
        members : callable
            From rows to how much they belong to each cluster.
        """
        n_clusters = self.terms.n_components
        if not self._alone:
            n_clusters = min(n_clusters, len(self.rows) // self.terms.min_rows)
        n_clusters = max(n_clusters, 1)
        rows, step = self.filled, -(-len(self.rows) // MAX_START_ROWS)
        if step > 1:
            rows = np.asarray(rows[np.arange(len(rows)) % step == 0])
        self.own_components = None
        if self.terms.init_params == "local_em" and len(self.rows) > 1:
            try:
                means, counts, predict_proba = local_components(
                    np.asarray(rows),
                    n_clusters,
                    self._random_state,
                    covariance_type=self.terms.covariance_type,
                    reg_covar=self.terms.reg_covar,
                )
            except ValueError:
                # too few rows for a mixture of one's own: clusters will do
                pass
            else:
                self.own_components = means, predict_proba
                return means, counts * step, predict_proba
        centroids, sizes = local_clusters(
            np.asarray(rows), n_clusters, self._random_state
        )

        def members(rows):
            return one_hot(nearest(rows, centroids), n_clusters)

        return centroids, sizes * step, members

    @operation(
        tells="whether the parties' centres are enough to start from",
        answers={"status": str},
    )
    def assign(self):
        if self.centres is None:
            return {"status": TOO_FEW_CENTROIDS}
        n_components, centres = self.terms.n_components, self.centres
        if self.own_components is None:
            self.responsibilities = map_rows(
                self.filled, lambda rows: one_hot(nearest(rows, centres), n_components)
            )
        else:
            means, predict_proba = self.own_components
            groups = one_hot(nearest(means, centres), n_components)
            self.responsibilities = map_rows(
                self.filled, lambda rows: predict_proba(rows) @ groups
            )
        return {"status": GO_ON}

    @operation(
        tells="sizes of its clusters and, at sites, how many rows each has in common "
        "with those of earlier rounds; whether the centres still move",
        hears="the sums of the round before",
        answers=SUMS_AND_STATUS,
        parties_only=True,
    )
    def cluster_sizes(self, total=None):
        self._take_cluster_sums(total)
        sizes = self._sizes(self.responsibilities)
        return {**self.hide(np.append(sizes, self._moved())), "status": self.status}

    def _moved(self):
        """Count own rows by their clusters now and in every round that was told.

        Sums of two rounds differ by rows that are in one cluster and not in the other;
        with gaps those of a column do by such rows that have an entry there. In a
        simulation nobody looks at them.
        """
        told = [] if self.is_simulated else self.told_centres
        n_clusters, self.n_compared = self.terms.n_components, len(told)

        def count(rows):
            filled, counted = rows, [None]
            if self.terms.has_gaps:
                filled, counted = fill_with_zeros(rows), [None, *~np.isnan(rows.T)]
            new = nearest(filled, self.centres)
            pairs = [nearest(filled, old) * n_clusters + new for old in told]
            return np.array(
                [np.bincount(p, one, n_clusters**2) for p in pairs for one in counted]
            )

        return sum_over_rows(self.rows, count).ravel() if told else np.zeros(0)

    def _read_sizes(self, total):
        """Return sizes of clusters; go back to those told last if few rows moved."""
        n_clusters, least = self.terms.n_components, self.terms.min_rows
        n_counts, self.n_compared = self.n_compared * n_clusters**2, 0
        if self.terms.has_gaps:
            n_counts *= 1 + self.rows.shape[1]
        values = self.reveal(total)
        sizes, moved = np.split(values, [len(values) - n_counts])
        if few_moved(moved.reshape(-1, n_clusters, n_clusters), least):
            self.centres, self.n_moves = self.told_centres[-1], MAX_LLOYD_ROUNDS - 1
            self.assign()
            return self.told_sizes
        return sizes

    def _remember(self, sizes):
        """Remember clusters whose sums are told now, for :meth:`_moved`."""
        self.told_centres.append(self.centres)
        self.told_sizes = sizes

    def _sizes(self, responsibilities):
        """Return how many rows components have, with gaps also in each column."""
        sizes = sum_over_rows(responsibilities, lambda shares: shares.sum(axis=0))
        if self.terms.has_gaps:
            pairs = paired_blocks(self.rows, responsibilities)
            seen = sum(entries_seen(rows, shares) for rows, shares in pairs)
            sizes = np.append(sizes, seen)
        return sizes

    @operation(
        tells="sizes and sums of its clusters, or, if the centres rest and sizes do "
        "not come first, of its first responsibilities and moments; whether the "
        "centres still move",
        hears="the sizes of clusters, if they come first, or the sums of the round "
        "before",
        answers=SUMS_AND_STATUS,
    )
    def cluster_sums(self, total=None):
        sizes = None
        if self._counts_first:
            sizes = self._read_sizes(total)
            self._remember(sizes)
        else:
            self._take_cluster_sums(total)
        self.clusters_summed = self.status == GO_ON
        moves = self.clusters_summed
        sums = self._own_cluster_sums(sizes) if moves else self._first_statistics()
        return {**self.hide(sums), "status": self.status}

    def _own_cluster_sums(self, all_sizes):
        def add(rows):
            labels = nearest(rows, self.centres)
            return cluster_sums(rows, labels, self.centres, self.scale)

        sums = sum_over_rows(self.filled, add)
        if all_sizes is not None:
            # small clusters stay where they are, and others in columns of few entries
            n_clusters, least = self.terms.n_components, self.terms.min_rows
            rows_of, entries_of = np.split(all_sizes, [n_clusters])
            sizes, means = np.split(sums, [n_clusters])
            means = means.reshape(n_clusters, -1)
            still = stay_untold(rows_of, least)
            sizes[still] = means[still] = 0
            if self.terms.has_gaps:
                means[stay_untold(entries_of.reshape(means.shape), least)] = 0
        return sums * self.unit

    def _take_cluster_sums(self, total):
        """Move the centres, if sums of clusters are out."""
        if self.clusters_summed != (total is not None):
            raise PartyRefusal("refused")
        if total is None:
            return
        sums, old = self.reveal(total) / self.unit, self.centres
        self.centres = move_centres(sums, old, self.scale)
        step = np.abs(self.centres - old).max(axis=0) / self.scale
        self.n_moves, self.clusters_summed = self.n_moves + 1, False
        settled = step.max() < 1e-4 or self.n_moves == MAX_LLOYD_ROUNDS
        self.status = CONVERGED if settled else GO_ON
        self.assign()

    @operation(
        peers="rows of the other parties, chosen as first means; their exact numbers "
        "of rows and, with k-means++, sums of squared distances from rows chosen",
        peers_kind="raw rows",
    )
    def choose_rows(self):
        """Draw rows as seeds; with k-means++ by squared distance from those before."""
        n_components, rows = self.terms.n_components, np.asarray(self.filled)
        shared = np.random.RandomState(self.terms.seeds[self.n_runs])
        chances = np.ones(len(rows))
        self.responsibilities = np.zeros((len(rows), n_components))
        for k in range(n_components):
            masses = yield from self._tell_peers({"mass": float(chances.sum())})
            ends = np.cumsum([masses[name]["mass"] for name in self.context.roster])
            target = shared.uniform() * ends[-1]
            holder = int(np.searchsorted(ends[:-1], target, side="right"))
            # The others send one, too, or the relay would know whose row it is.
            row = np.zeros(rows.shape[1])
            if self.context.roster[holder] == self.name:
                target -= ends[holder - 1] if holder else 0.0
                chosen = np.searchsorted(np.cumsum(chances)[:-1], target, side="right")
                self.responsibilities[chosen, k] = 1
                chances[chosen] = 0
                row = rows[chosen]
            told = yield from self._tell_peers({"row": row})
            if self.terms.init_params == "k-means++":
                row = told[self.context.roster[holder]]["row"]
                squares = ((rows - row) ** 2).sum(axis=1)
                chances = squares if k == 0 else np.minimum(chances, squares)

    def _tell_peers(self, mine):
        """Send all peers the same and return what everybody sent, by name."""
        received = {self.name: mine}
        if not self._alone:
            received.update((yield dict.fromkeys(self.peers, mine)))
        if received.keys() != set(self.context.roster):
            raise PartyRefusal("refused")
        for message in received.values():
            check_like(message, mine)
        return received

    def _first_responsibilities(self):
        """Return those of the own rows of which the first mixture is made."""
        if self.terms.init_params == "random" and self.n_drawn == self.n_runs:
            shape = len(self.rows), self.terms.n_components
            if self.is_simulated:
                drawn = random_responsibilities(*shape, self._random_state)
            else:
                drawn = secret_responsibilities(*shape)
            # once for every start: sizes first, then sums of the same
            self.responsibilities, self.n_drawn = drawn, self.n_runs + 1
        return self.responsibilities

    def _first_statistics(self):
        responsibilities = self._first_responsibilities()
        self.frame = self._survey_frame()
        vector = self._statistics(responsibilities, self._survey_mixture())
        return vector * self.unit

    def _statistics(self, responsibilities, mixture):
        """Return what the M-step needs, and with gaps how many entries it is about."""
        vector = sum_moments(self.rows, responsibilities, self.frame, mixture)
        if self.terms.has_gaps:
            seen = self._sizes(responsibilities)[self.terms.n_components :]
            vector = np.append(vector, seen)
        return vector

    @property
    def _counts_first(self):
        return self.coordinator_reads and not self._alone


def sum_moments(X, responsibilities, frame, mixture):
    """Sum responsibilities and moments of rows, block by block.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features) or RowSource
    responsibilities : ndarray of shape (n_samples, n_components) or RowSource
    frame : Frame
    mixture : Mixture
        What to expect in gaps.

    Returns
    -------
    vector : ndarray
        As :func:`local_statistics` returns it.
    """
    return sum(
        local_statistics(rows, shares, frame, mixture)
        for rows, shares in paired_blocks(X, responsibilities)
    )


def start(federation, terms):
    """Let the parties find a mixture to start from.

    Parameters
    ----------
    federation : Federation
    terms : dict
        The parties' terms.

    Returns
    -------
    n_sums : int
        How many sums of clusters or moments were taken for it.
    """
    how, n_sums, total = terms.init_params, 1, None
    if how == "given":
        federation.call("begin_given")
        return 0
    if how in ("kmeans", "local_em"):
        federation.converse("share_centroids")
        if unanimous(federation.call("assign")) == TOO_FEW_CENTROIDS:
            raise ValueError(
                f"the parties have fewer than n_components={terms.n_components} "
                f"clusters of at least min_rows={terms.min_rows} rows to start "
                "from: give means_init, or lower n_components or min_rows"
            )
    if how == "kmeans":
        total, n_moves = _move_centres(federation)
        n_sums += n_moves
    elif how in ("k-means++", "random_from_data"):
        federation.converse("choose_rows")
    status = GO_ON
    if how != "kmeans" and counts_first(federation):
        total, _ = sum_and_status(federation, "component_sizes", None)
    if how != "kmeans" or counts_first(federation):
        total, status = sum_and_status(federation, "start", total)
    if status != SMALL:
        status = unanimous(federation.call("begin", {"total": total}))
    if status == ILL_DEFINED:
        raise IllDefinedCovarianceError
    if status == SMALL:
        raise ValueError(small_component_message(terms))
    return n_sums


def _move_centres(federation):
    """Sum clusters until their centres rest; the last sums are the first of EM."""
    first = "cluster_sizes" if counts_first(federation) else "cluster_sums"
    total, status = sum_and_status(federation, first, None)
    n_moves = 0
    while status == GO_ON:
        if counts_first(federation):
            total, _ = sum_and_status(federation, "cluster_sums", total)
        n_moves += 1
        total, status = sum_and_status(federation, first, total)
    return total, n_moves


def counts_first(federation):
    """Tell whether parties look at numbers of rows before they tell anything else."""
    return federation.coordinator_reads and len(federation.roster) > 1


def sum_and_status(federation, operation, total):
    """Hand back the last sum, if one is due, and have the next.

    Parameters
    ----------
    federation : Federation
    operation : str
        Its answers are ``SUMS_AND_STATUS``.
    total : OpenSum, dict or None

    Returns
    -------
    total : OpenSum or dict
    status : str
    """
    payload = {} if total is None else {"total": total}
    total = federation.secure_sum(operation, payload)
    return total, unanimous(federation.replies)


def small_component_message(terms):
    """Say that a component would describe too few rows."""
    rows = "rows, or entries of a column" if terms.has_gaps else "rows"
    return (
        f"a component describes fewer than min_rows={terms.min_rows} {rows}, and "
        "its parameters would tell too much about them: use fewer components, another "
        "start, or lower min_rows"
    )
