"""GAE for conversations: over turns, and within each turn over its tokens."""

from __future__ import annotations

from typing import Any, Literal

from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Estimator, Own, call_of
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace
from linscan.rl.gae import GAE


def _compose(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    decay = i.gamma * trace.going_on(i.lam)
    delta = i.rewards + i.gamma * trace.next_values - i.values
    if i.own[-1] == "token":
        advantages = trace.scan(decay, delta)
    else:
        advantages = _with_turns(i, trace, decay, delta)
    return trace.valid(advantages), trace.valid(advantages + i.values)


def _with_turns(i: EstimatorInputs, trace: Trace, decay: Any, delta: Any) -> Any:
    """The advantages of the other variants."""
    xp, (ids, gamma_turn, lam_turn, variant) = trace.xp, i.own
    ids = xp.broadcast_to(xp.astype(ids, xp.float64), i.rewards.shape)
    last = trace.ends | (trace.following(ids) != ids)

    def over(turns: Trace, rewards: Any) -> Any:
        """The advantages of turns, each of which has its rewards and its value at one step."""
        b = rewards + gamma_turn * turns.next_values - i.values
        return turns.scan(gamma_turn * turns.going_on(lam_turn), b)

    if variant == "end":
        return trace.scan(decay, xp.where(last, over(trace.only(last), i.rewards), delta), last)
    is_last = xp.where(last, 1.0, xp.zeros_like(i.rewards))
    first = trace.only(trace.preceding(is_last, 1.0) > 0.5)
    turns = over(first, trace.scan(1.0, i.rewards, last))
    if variant == "turn":
        return trace.held(turns, first.inputs.mask)
    join = delta + decay * trace.following(turns)
    return trace.scan(decay, xp.where(last, join, delta), last)


ESTIMATOR = Estimator(
    "turn_gae",
    ("advantages", "returns"),
    _compose,
    needs=("values", "gamma", "lam", "turn_ids", "gamma_turn", "lam_turn"),
    own=(
        Own("turn_ids", "ids"),
        Own("gamma_turn", "weight"),
        Own("lam_turn", "weight"),
        Own("variant", "option", words=("end", "start", "turn", "token")),
    ),
)


def turn_gae(
    rewards: Any,
    values: Any,
    turn_ids: Any,
    *,
    gamma: Any,
    lam: Any,
    gamma_turn: Any,
    lam_turn: Any,
    variant: Literal["end", "start", "turn", "token"] = "end",
    last_values: Any = None,
    terminated: Any = None,
    mask: Any = None,
    lengths: Any = None,
    cu_seqlens: Any = None,
    axis: int = -1,
    masked_reward: Literal["drop", "raise", "to_previous_valid"] = "drop",
    out: tuple[Any, Any] | None = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> GAE:
    r"""Bi-level GAE: over turns, and within each turn over its tokens.

    A turn is a run of valid steps with the same id: so a turn whose reward is 0 is still a turn.
    With δₜ = rₜ + γ nₜ - Vₜ as in :func:`linscan.gae`, where nₜ is the value of the next valid
    token, and H the advantage of a turn:

    ``variant="end"``: a turn has its reward and its value at its last token e; e' is that of the
    next turn::

        Hₑ = rₑ + γ_turn Vₑ' - Vₑ + γ_turn λ_turn Hₑ'
        Aₜ = Hₜ                         at the last token of a turn
        Aₜ = δₜ + γ λ Aₜ₊₁              elsewhere

    ``variant="start"``: a turn has its value at its first token s, and R is the sum of its
    rewards; s' is the first token of the next turn::

        Hₛ = R + γ_turn Vₛ' - Vₛ + γ_turn λ_turn Hₛ'
        Aₜ = δₜ + γ λ Hₜ₊₁              at the last token of a turn that another one follows
        Aₜ = δₜ + γ λ Aₜ₊₁              elsewhere

    ``variant="turn"``: every token of a turn has the turn's advantage, Hₛ above.
    ``variant="token"``: turns make no difference, and this is :func:`linscan.gae`.

    At the end of an episode or a row the next value is the bootstrap (``last_values``, 0 where
    terminated) and the next advantage is 0.  Masks, shapes, dtypes, errors and the other arguments
    are those of :func:`linscan.gae`; rewards on masked steps are **dropped** unless
    ``masked_reward`` says otherwise.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        values: Vₜ, shaped like ``rewards`` or one step longer.
        turn_ids: Integers that broadcast to ``rewards``, with its time axis; read at valid steps.
        gamma: The discount γ between tokens: a number, or an array that broadcasts to ``rewards``.
        lam: The trace decay λ between tokens, likewise.
        gamma_turn: The discount between turns, likewise; read where a turn has its value.
        lam_turn: The trace decay between turns, likewise.
        variant: Where a turn has its value, and which of its tokens its advantage, as above.
        last_values: As in :func:`linscan.gae`, and so are all the others.
        terminated: See there.
        mask: See there; the results are 0 at masked steps.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked_reward: See there.
        out: Two arrays to write the results into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        ``GAE(advantages, returns)``: Aₜ, and Aₜ + Vₜ; each fresh and shaped like ``rewards``.

    Raises:
        TypeError: ``turn_ids`` that are not integers; and what :func:`linscan.gae` raises.
        ValueError: An unknown variant; and what :func:`linscan.gae` raises.

    Source:
        Wang et al., "VAGEN: reinforcing world model reasoning for multi-turn VLM agents" (2025),
        arXiv 2510.16907, section 4: bi-level GAE; "start" and "turn" are later forms of its code.

    >>> rewards, values = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    >>> linscan.turn_gae(
    ...     rewards, values, [0, 0, 1], gamma=1.0, lam=1.0, gamma_turn=0.5, lam_turn=1.0
    ... ).advantages
    array([ 1.,  0., -1.])
    """
    call = call_of(
        ESTIMATOR,
        rewards=rewards,
        values=values,
        turn_ids=turn_ids,
        gamma=gamma,
        lam=lam,
        gamma_turn=gamma_turn,
        lam_turn=lam_turn,
        variant=variant,
        last_values=last_values,
        terminated=terminated,
        mask=mask,
        lengths=lengths,
        cu_seqlens=cu_seqlens,
        axis=axis,
        masked_reward=masked_reward,
        out=out,
        out_dtype=out_dtype,
        backend=backend,
        chunk_size=chunk_size,
        check=check,
        differentiable=differentiable,
    )
    return GAE(*estimate(call))
