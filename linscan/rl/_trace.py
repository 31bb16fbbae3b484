"""The composed path: what every estimator needs beside its own two lines of mathematics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linscan import _arrays
from linscan._problem import EstimatorInputs, EstimatorProblem

Scan = Callable[..., Any]
"""``scan(a, b, initial=, reset=, *, reverse=True)`` along axis 1."""


class Trace:
    """How the trace of one problem runs: where it ends, what follows a step, how to scan it.

    Everything is ``(outer, time, inner)``, or broadcasts to that.
    """

    def __init__(self, problem: EstimatorProblem, inputs: EstimatorInputs, scan: Scan) -> None:
        self.problem = problem
        self.inputs = inputs
        self._scan = scan
        self.xp = _arrays.namespace(inputs.rewards)
        self._followers: Any = None
        self._ends: Any = None

    @property
    def cut(self) -> Any:
        """Where a flag stands, on a valid step or a masked one; None if there are no flags."""
        terminated, truncated = self.inputs.terminated, self.inputs.truncated
        if terminated is None or truncated is None:
            return truncated if terminated is None else terminated
        return terminated | truncated

    @property
    def _follows(self) -> Any:
        if self._followers is None:
            self._followers = self._find_followers()
        return self._followers

    def _find_followers(self) -> Any:
        """What follows a step: 0 a valid one, 1 a termination in a hole, 2 a truncation, 3 the end.

        A scan itself: a hole passes on what follows it, unless it holds a flag.
        """
        xp, i = self.xp, self.inputs
        code = xp.zeros_like(i.rewards)
        stop = i.mask
        if i.truncated is not None:
            code = xp.where(i.truncated & ~i.mask, 2.0, code)
            stop = stop | i.truncated
        if i.terminated is not None:
            code = xp.where(i.terminated & ~i.mask, 1.0, code)
            stop = stop | i.terminated
        end = xp.full_like(code[:, :1], 3.0)
        return self._shift(self._scan(1.0, code, initial=end, reset=stop), end)

    @property
    def terminated(self) -> Any:
        """Where no value follows a valid step; None if nowhere."""
        return self._flag(self.inputs.terminated, self.inputs.truncated, 1)

    @property
    def truncated(self) -> Any:
        """Where a valid step is followed by the value of its final observation; None if nowhere."""
        return self._flag(self.inputs.truncated, self.inputs.terminated, 2)

    def _flag(self, own: Any, other: Any, code: int) -> Any:
        """A flag on a valid step, or on the holes right after one that has no flag itself."""
        if own is None or self.inputs.mask is None:
            return own
        carried = self._follows == code
        return own | (carried if other is None else carried & ~other)

    @property
    def ends(self) -> Any:
        """Where the trace does not go on to a later step."""
        if self._ends is None:
            self._ends = self._find_ends()
        return self._ends

    def _find_ends(self) -> Any:
        xp = self.xp
        if self.inputs.mask is not None:
            ends = self._follows != 0
        else:
            last = xp.zeros_like(self.inputs.rewards[:1, :, :1], dtype=xp.bool)
            last[:, -1:] = True
            ends = last
        return ends if self.cut is None else ends | self.cut

    @property
    def next_values(self) -> Any:
        """The value that follows each step: 0 where terminated."""
        xp, i, truncation = self.xp, self.inputs, self.problem.truncation
        if i.next_values is not None:
            n = i.next_values
        else:
            n = self._next_valid_values()
            if truncation == "values":
                n = xp.where(i.truncated, i.truncation_values, n)
            elif truncation == "current_value":
                n = xp.where(self.truncated, i.values, n)
        if i.mask is not None:
            n = xp.where(i.mask, n, 0.0)
        return n if self.terminated is None else xp.where(self.terminated, 0.0, n)

    def _next_valid_values(self) -> Any:
        """The value of the next valid step, or what a flag on the holes before it puts there."""
        xp, i = self.xp, self.inputs
        last = xp.zeros_like(i.rewards[:, :1]) if i.last_values is None else i.last_values
        v = i.values if i.values is not None else xp.zeros_like(i.rewards)
        if i.mask is None:
            return self._shift(v, last)
        stop = i.mask
        if i.truncated is not None:
            there = i.truncation_values if self.problem.truncation == "values" else 0.0
            v = xp.where(i.truncated & ~i.mask, there, v)
            stop = stop | i.truncated
        if i.terminated is not None:
            v = xp.where(i.terminated & ~i.mask, 0.0, v)
            stop = stop | i.terminated
        return self._shift(self._scan(1.0, xp.where(stop, v, 0.0), initial=last, reset=stop), last)

    def following(self, x: Any) -> Any:
        """``x`` at the next valid step, and 0 where the trace ends."""
        x, mask = self.xp.broadcast_to(x, self.inputs.rewards.shape), self.inputs.mask
        last = self.xp.zeros_like(x[:, :1])
        if mask is not None:
            x = self._scan(1.0, self.xp.where(mask, x, 0.0), initial=last, reset=mask)
        return self.xp.where(self.ends, 0.0, self._shift(x, last))

    def preceding(self, x: Any, first: Any) -> Any:
        """``x`` at the valid step before, whatever ended there; ``first`` at the first one."""
        x, mask = self.xp.broadcast_to(x, self.inputs.rewards.shape), self.inputs.mask
        first = self.xp.full_like(x[:, :1], first)
        if mask is not None:
            held = self.xp.where(mask, x, 0.0)
            x = self._scan(1.0, held, initial=first, reset=mask, reverse=False)
        return self.xp.concat([first, x[:, :-1]], axis=1)

    def held(self, x: Any, where: Any) -> Any:
        """``x`` there, and at the steps after it until the next such place."""
        return self._scan(1.0, self.xp.where(where, x, 0.0), reset=where, reverse=False)

    def only(self, where: Any) -> Trace:
        """The same trace with valid steps there alone."""
        mask = self.inputs.mask
        where = where if mask is None else where & mask
        return Trace(self.problem, self.inputs._replace(mask=where), self._scan)

    def _shift(self, x: Any, last: Any) -> Any:
        """``x`` one step later."""
        shape = (self.problem.outer, 1, self.problem.inner)
        return self.xp.concat([x[:, 1:], self.xp.broadcast_to(last, shape)], axis=1)

    def scan(self, a: Any, b: Any, stop: Any = None) -> Any:
        """``x[t] = b[t] + (0 if the trace is cut, else a[t] * x[t + 1])``, stepping over holes.

        The trace is cut at valid steps, too, that are to ``stop``.
        """
        mask, cut = self.inputs.mask, self.cut
        if stop is not None:
            stop = stop if mask is None else stop & mask
            cut = stop if cut is None else stop | cut
        if mask is not None:
            a = self.xp.where(mask, a, self.xp.ones_like(b))
            b = self.xp.where(mask, b, 0.0)
        return self._scan(a, b, reset=cut)

    def scan_forward(self, a: Any, b: Any) -> Any:
        """``x[t] = b[t] + (0 if the trace was cut, else a[t - 1] * x[t - 1])``, over holes."""
        xp, mask, cut = self.xp, self.inputs.mask, self.cut
        if mask is not None:
            a = xp.where(mask, a, xp.ones_like(b))
            b = xp.where(mask, b, 0.0)
        if not _arrays.is_scalar(a) and a.shape[1] > 1:
            a = xp.concat([a[:, :1], a[:, :-1]], axis=1)
        if cut is not None:
            cut = xp.broadcast_to(cut, self.inputs.rewards.shape)
            cut = xp.concat([xp.zeros_like(cut[:, :1]), cut[:, :-1]], axis=1)
        return self._scan(a, b, reset=cut, reverse=False)

    def going_on(self, lam: Any) -> Any:
        """λ where the trace goes on; elsewhere it is not read, nor does a gradient meet it."""
        if _arrays.is_scalar(lam):
            return lam
        mask = self.inputs.mask
        unread = self.ends if mask is None else self.ends | ~mask
        return self.xp.where(unread, 0.0, lam)

    @property
    def starts(self) -> Any:
        """Where no earlier step's trace goes on to."""
        ends = self.xp.where(self.ends, 1.0, self.xp.zeros_like(self.inputs.rewards))
        return self.preceding(ends, 1.0) > 0.5

    def weight(self, x: Any) -> Any:
        """A weight as an array, which is 0 in holes."""
        if _arrays.is_scalar(x):
            return self.xp.full_like(self.inputs.rewards[:1, :1, :1], x)
        return x if self.inputs.mask is None else self.xp.where(self.inputs.mask, x, 0.0)

    def output(self, x: Any) -> Any:
        """A result as the caller wants to see it at masked steps."""
        return x if self.problem.masked == "carry" else self.valid(x)

    def valid(self, x: Any) -> Any:
        """``x``, and 0 at masked steps."""
        return x if self.inputs.mask is None else self.xp.where(self.inputs.mask, x, 0.0)
