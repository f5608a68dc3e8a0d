"""Fast causal inference (FCI): graphs with hidden causes, by tests of independence.

The skeleton is found as in PC, order-independently, then thinned by conditioning on
Possible-D-SEP; rules R0 to R4 and R8 to R10 orient it. They are complete where no rows
are selected (Zhang, 2008).

Marks are those of :class:`~skprivbn.bayesian_network.PartialAncestralGraph`: entry
(i, j) is the mark at j of the edge between i and j.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, combinations, permutations

import numpy as np

from skprivbn.bayesian_network._dag import ARROW, CIRCLE, TAIL, apply_meek_rules
from skprivbn.structure._edge_rules import EdgeRules
from skprivbn.structure._search import complete

#: mark of an edge that may be there: a test that could have removed it was not possible
_UNTESTED = 4


class IndependenceTests:
    """Tests of conditional independence whose answers are at hand.

    Parameters
    ----------
    independent : callable
        Takes two nodes and a tuple of others; True, False, or None where no test is
        possible.
    """

    def __init__(self, independent: Callable[[int, int, tuple], bool | None]) -> None:
        self.answer = independent

    def asking(self, tests: list[tuple]) -> Iterator:
        """Ask for what tests need: nothing.

        Parameters
        ----------
        tests : list of (int, int, tuple of int)

        Yields
        ------
        question : object
        """
        return iter(())


def fci(
    independent: Callable[[int, int, tuple], bool | None],
    n_nodes: int,
    max_condition: int | None = None,
    rules: EdgeRules | None = None,
) -> np.ndarray:
    """Learn a partial ancestral graph from tests whose answers are at hand.

    Parameters
    ----------
    independent : callable
        As of :class:`IndependenceTests`.
    n_nodes, max_condition, rules :
        As of :func:`finding_pag`.

    Returns
    -------
    marks : ndarray of int of shape (n_nodes, n_nodes)
    """
    tests = IndependenceTests(independent)
    return complete(finding_pag(tests, n_nodes, max_condition, rules))[0]


def finding_pag(tests, n_nodes, max_condition=None, rules=None):
    """Learn a partial ancestral graph from tests of conditional independence.

    Parameters
    ----------
    tests : IndependenceTests
    n_nodes : int
    max_condition : int, default=None
        Most nodes that a test is given.
    rules : EdgeRules, default=None
        Required edges are causes, and not tested. Edges that are not allowed are ruled
        out as causes: a node is no ancestor of the other.

    Yields
    ------
    question : object
        Of ``tests.asking``.

    Returns
    -------
    marks : ndarray of int of shape (n_nodes, n_nodes)
    untested : ndarray of bool of shape (n_nodes, n_nodes)
        Edges, with circles at both ends, that another test might have removed. No
        mark of another edge depends on them.

    References
    ----------
    Spirtes, Glymour, Scheines. Causation, Prediction, and Search. 2000.

    Zhang. On the completeness of orientation rules for causal discovery in the presence
    of latent confounders and selection bias. Artificial Intelligence 172, 2008.
    """
    rules = EdgeRules.free(n_nodes) if rules is None else rules
    most = n_nodes - 2 if max_condition is None else max_condition
    skeleton = _Skeleton(n_nodes, rules.required | rules.required.T)
    yield from skeleton.thinning(tests, most)
    marks = _with_colliders(skeleton.adjacent, skeleton.separators)
    sets = {
        (x, y): (_possible_d_sep(marks, x, y), _possible_d_sep(marks, y, x))
        for x, y in np.argwhere(np.triu(skeleton.adjacent)).tolist()
    }
    yield from skeleton.separating(tests, sets, range(2, most + 1))
    untested = skeleton.untested & skeleton.adjacent
    marks = _with_colliders(skeleton.adjacent & ~untested, skeleton.separators)
    marks[untested] = _UNTESTED
    known = (marks != 0) & (marks != _UNTESTED)
    marks[known & ~rules.allowed.T] = ARROW
    marks[known & rules.required] = ARROW
    marks[known & rules.required.T] = TAIL
    # every rule has its turn, whether one before has changed something or not
    changed = True
    while changed:
        changed = _apply(marks, _rules_1_2(marks)) | _apply(marks, _rule_3(marks))
        changed |= yield from _rule_4(marks, skeleton.separators, tests, most)
        for rule in (_rule_8, _rule_9, _rule_10):
            changed |= _apply(marks, rule(marks))
    marks[untested] = CIRCLE
    return marks, untested


def find_skeleton(
    independent: Callable[[int, int, tuple], bool | None],
    n_nodes: int,
    max_condition: int,
) -> tuple[np.ndarray, dict[tuple[int, int], set[int]]]:
    """Find which nodes no set of neighbours separates: PC's first step, stable.

    Parameters
    ----------
    independent : callable
        As of :class:`IndependenceTests`.
    n_nodes, max_condition : int

    Returns
    -------
    adjacent : ndarray of bool of shape (n_nodes, n_nodes)
    separators : dict of (int, int) to set of int
        By both orders of a pair.

    References
    ----------
    Colombo, Maathuis. Order-independent constraint-based causal structure learning.
    JMLR 2014.
    """
    skeleton = _Skeleton(n_nodes)
    complete(skeleton.thinning(IndependenceTests(independent), max_condition))
    return skeleton.adjacent, skeleton.separators


def direct_edges(
    adjacent: np.ndarray, separators: dict[tuple[int, int], Collection[int]]
) -> np.ndarray:
    """Direct colliders of a skeleton, then what they imply: PC's second step.

    Parameters
    ----------
    adjacent, separators :
        As of :func:`find_skeleton`. Where tests contradict each other, the colliders
        of earlier separators win.

    Returns
    -------
    pdag : ndarray of bool of shape (n_nodes, n_nodes)
        Undirected edges in both directions.
    """
    pdag = adjacent.copy()
    for (x, y), given in separators.items():
        for middle in np.flatnonzero(adjacent[x] & adjacent[y]).tolist():
            if middle not in given and pdag[x, middle] and pdag[y, middle]:
                pdag[middle, x] = pdag[middle, y] = False
    return apply_meek_rules(pdag)


class _Skeleton:
    """Edges that are left, what separates other nodes, and what no test could tell."""

    def __init__(self, n_nodes, required=None):
        self.adjacent = ~np.eye(n_nodes, dtype=bool)
        self.untested = np.zeros((n_nodes, n_nodes), dtype=bool)
        self.required = self.untested.copy() if required is None else required
        self.separators: dict[tuple[int, int], set[int]] = {}

    def thinning(self, tests, max_condition):
        """Remove edges between nodes that some neighbours separate."""
        for size in range(max_condition + 1):
            before = self.adjacent.copy()
            if before.sum(axis=0).max(initial=0) <= size:
                break
            near = [set(np.flatnonzero(nodes).tolist()) for nodes in before]
            sets = {
                (x, y): (near[x] - {y}, near[y] - {x})
                for x, y in np.argwhere(np.triu(before)).tolist()
            }
            yield from self.separating(tests, sets, [size])

    def separating(self, tests, sets, sizes):
        """Remove edges between nodes that a subset of others separates.

        All subsets of a size are tested at once, which takes one round. A separator is
        the union of those that do: colliders depend on no order of nodes or subsets.
        """
        for size in sizes:
            asked = [
                (x, y, given)
                for (x, y), sides in sets.items()
                if self.adjacent[x, y] and not self.required[x, y]
                for given in _subsets(sides, size)
            ]
            yield from tests.asking(asked)
            for x, y, given in asked:
                answer = tests.answer(x, y, given)
                if answer:
                    self.adjacent[x, y] = self.adjacent[y, x] = False
                    found = self.separators.setdefault((x, y), set())
                    self.separators[y, x] = found
                    found.update(given)
                elif answer is None:
                    self.untested[x, y] = self.untested[y, x] = True


def _subsets(sides, size):
    found = (combinations(sorted(nodes), size) for nodes in sides)
    return sorted(set(chain.from_iterable(found)))


def _with_colliders(adjacent, separators):
    """R0: circles on a skeleton, and arrows where no separator holds the middle."""
    marks = np.where(adjacent, CIRCLE, 0)
    for (x, y), given in separators.items():
        for middle in np.flatnonzero(adjacent[x] & adjacent[y]).tolist():
            if middle not in given:
                marks[x, middle] = marks[y, middle] = ARROW
    return marks


def _possible_d_sep(marks, start, end) -> set[int]:
    """Return which nodes may have to be conditioned on, to separate two.

    Those at the end of a path from one that does not meet the other, on which every
    inner node is a collider, or has neighbours on the path that are adjacent.
    """
    first = [(start, node) for node in np.flatnonzero(marks[start]).tolist()]
    waiting = [step for step in first if step[1] != end]
    seen = set(waiting)
    while waiting:
        before, node = waiting.pop()
        for after in np.flatnonzero(marks[node]).tolist():
            collides = marks[before, node] == ARROW == marks[after, node]
            step = (node, after)
            if after in (before, start, end) or step in seen:
                continue
            if collides or marks[before, after]:
                seen.add(step)
                waiting.append(step)
    return {node for _, node in seen}


def _apply(marks, found: Iterable[tuple[int, int, int]]) -> bool:
    """Write marks in the place of circles, as rules find them; tell whether any was."""
    changed = False
    for i, j, mark in found:
        if marks[i, j] == CIRCLE:
            marks[i, j], changed = mark, True
    return changed


def _triples(marks) -> Iterator[tuple[int, int, int]]:
    """Yield paths of three nodes, in both directions."""
    for b in range(len(marks)):
        for a, c in permutations(np.flatnonzero(marks[b]).tolist(), 2):
            yield a, b, c


def _rules_1_2(marks):
    """R1, R2: arrows are no new colliders, and close no cycle, triple by triple."""
    for b in range(len(marks)):
        for a, c in combinations(np.flatnonzero(marks[b]).tolist(), 2):
            for rule in (_rule_1, _rule_2):
                yield from rule(marks, a, b, c)
                yield from rule(marks, c, b, a)


def _rule_1(marks, a, b, c):
    """R1: a *-> b o-* c, a and c not adjacent: b -> c, or b would be a collider."""
    if marks[a, b] == ARROW and marks[c, b] == CIRCLE and not marks[a, c]:
        yield from [(c, b, TAIL), (b, c, ARROW)]


def _rule_2(marks, a, b, c):
    """R2: a -> b *-> c or a *-> b -> c, and a *-o c: a *-> c, or there were a cycle."""
    leads = TAIL in (marks[b, a], marks[c, b])
    if marks[a, b] == ARROW == marks[b, c] and leads:
        yield a, c, ARROW


def _rule_3(marks):
    """R3: a *-> b <-* c, a *-o d o-* c, a and c not adjacent, d *-o b: d *-> b."""
    for a, b, c in _triples(marks):
        if marks[a, b] == ARROW == marks[c, b] and not marks[a, c]:
            both = (marks[a] == CIRCLE) & (marks[c] == CIRCLE) & (marks[:, b] != 0)
            yield from ((d, b, ARROW) for d in np.flatnonzero(both).tolist())


def _rule_4(marks, separators, tests, max_condition):
    """R4: the last inner node of a discriminating path is a collider, or it is not.

    Its path separates the ends with it, or without it; if tests say neither, the
    separator decides that was found.
    """
    changed = False
    for a, b, c in _triples(marks):
        # a <-> b o-* c with a -> c: the path begins somewhere behind a
        is_end = marks[b, a] == ARROW and marks[c, b] == CIRCLE
        if not is_end or not _is_parent(marks, a, c):
            continue
        path = _discriminating_path(marks, a, b, c)
        if path is None:
            continue
        start, inner = path[0], path[1:]
        asked = [(start, c, (*inner, b)), (start, c, inner)]
        answers = [None, None]
        if len(inner) < max_condition:
            yield from tests.asking(asked)
            answers = [tests.answer(*test) for test in asked]
        if answers[0] or not answers[1] and b in separators.get((start, c), ()):
            changed |= _apply(marks, [(c, b, TAIL), (b, c, ARROW)])
        else:
            changed |= _apply(marks, [(a, b, ARROW), (c, b, ARROW), (b, c, ARROW)])
    return changed


def _discriminating_path(marks, a, b, c):
    """Return a shortest discriminating path for b, up to a, or None."""
    waiting, seen = [(a,)], {a, b, c}
    while waiting:
        path = waiting.pop(0)
        for before in np.flatnonzero(marks[:, path[0]] == ARROW).tolist():
            if before in seen:
                continue
            if not marks[before, c]:
                return before, *path
            # every inner node is a collider on the path and a parent of its end
            if marks[path[0], before] == ARROW and _is_parent(marks, before, c):
                seen.add(before)
                waiting.append((before, *path))
    return None


def _is_parent(marks, a, c):
    return marks[a, c] == ARROW and marks[c, a] == TAIL


def _half_arrows(marks):
    """Return the edges a o-> c, whose tails R8 to R10 look for."""
    return np.argwhere((marks == ARROW) & (marks.T == CIRCLE)).tolist()


def _rule_8(marks):
    """R8: a -> b -> c, or a -o b -> c, and a o-> c: a -> c."""
    for a, c in _half_arrows(marks):
        for b in range(len(marks)):
            leads = marks[b, a] == TAIL and marks[a, b] in (ARROW, CIRCLE)
            if leads and _is_parent(marks, b, c):
                yield c, a, TAIL


def _rule_9(marks):
    """R9: a o-> c, and an uncovered path from a to c that may be directed: a -> c."""
    for a, c in _half_arrows(marks):
        steps = _first_steps(marks, a, c)
        if any(b != c and not marks[b, c] for b in steps):
            yield c, a, TAIL


def _rule_10(marks):
    """R10: a o-> c, and such paths to two parents of c that begin apart: a -> c."""
    for a, c in _half_arrows(marks):
        parents = [b for b in range(len(marks)) if _is_parent(marks, b, c)]
        steps = [_first_steps(marks, a, b) for b in parents]
        if any(
            not marks[m, w] and m != w
            for one, other in combinations(steps, 2)
            for m in one
            for w in other
        ):
            yield c, a, TAIL


def _first_steps(marks, start, end):
    """Return the second nodes of uncovered, potentially directed paths."""
    return [
        step
        for step in np.flatnonzero(_may_lead(marks, start)).tolist()
        if step == end or _leads_on(marks, start, step, end, {start, step})
    ]


def _leads_on(marks, before, node, end, seen):
    for after in np.flatnonzero(_may_lead(marks, node)).tolist():
        if after in seen or marks[before, after]:
            continue
        if after == end or _leads_on(marks, node, after, end, seen | {after}):
            return True
    return False


def _may_lead(marks, node):
    """Return which edges from a node have no arrow at it and no tail at their end."""
    return np.isin(marks[node], (CIRCLE, ARROW)) & (marks[:, node] != ARROW)
