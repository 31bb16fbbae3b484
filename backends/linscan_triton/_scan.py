"""A scan's launches: planned once per problem and layout, then only filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from linscan._problem import ScanProblem
from linscan_triton import interpreting
from linscan_triton._kernels import columns, rows
from linscan_triton._recurrence import finish_scan, load_scan, prepare_scan, start_scan
from linscan_triton._regimes import (
    Regime,
    Strides,
    power_of_two,
    regime,
    strides,
)

Way = tuple[int | tuple[int, int], ...]
"""An operand's strides as kernels take them: see :mod:`linscan_triton._tile`."""

KERNELS = {"rows": rows, "columns": columns}
REAL = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}
"""The dtype of a number's parts."""
NOUGHTS = (0.0,) * 6
"""Numbers that kernels are given and do not need."""
ALL_REGISTERS = 255
"""Where this is not said, the compiler spills some for the sake of one more program."""
REGISTERS = 128
"""Per thread of NVIDIA's, at most: so that two programs of 8 warps share a multiprocessor."""


class Code(NamedTuple):
    """What the kernels are told to do, and on how many operands; the results come after these.

    The second operand and the results decide about a plan: how they lie in memory, and whether
    accesses can be wide.
    """

    operands: int
    flags: tuple[int, ...]
    """Which operands are not numbers of the problem's dtype, complex or not."""
    start: Any
    load: dict[str, Any]
    """By kernel."""
    prepare: Any
    finish: Any
    kind: str | None = None
    """What these functions are told as ``KIND``; else it is that of the problem's multipliers."""
    chunks: bool = True
    """Whether time may be cut."""
    heavy: bool = False
    """Whether it does more than a scan, so that it needs more registers."""


SCAN = Code(
    operands=3,
    flags=(2,),
    start=start_scan,
    load=dict.fromkeys(KERNELS, load_scan),
    prepare=prepare_scan,
    finish=finish_scan,
)
"""Operands a, b and reset."""


class Layout(NamedTuple):
    """Strides in elements, and whether the memory begins at a multiple of 16 bytes."""

    strides: Strides
    aligned: bool


def layout(x: Tensor) -> Layout:
    """How a three-dimensional tensor lies in memory."""
    return Layout(strides(tuple(x.shape), x.stride()), x.data_ptr() % 16 == 0)


def scan(
    problem: ScanProblem, a: Any, b: Tensor, initial: Tensor | None, reset: Any, out: Any
) -> tuple[Tensor, Tensor | None]:
    """``Backend.scan`` for torch tensors."""
    if out is None:
        shape = problem.outer, problem.time, problem.inner
        out = torch.empty(shape, dtype=b.dtype, device=b.device)
    final = None
    if problem.final:
        state = problem.outer, 1, problem.inner
        final = torch.empty(state, dtype=b.dtype, device=b.device)
    if out.numel():
        numbers: Sequence[float] = ()
        if problem.a == "scalar":
            number = complex(a)
            numbers, a = (number.real, number.imag), None
        run(problem, (a, b, reset, out, initial, final), numbers)
    elif final is not None:
        final.copy_(torch.zeros_like(final) if initial is None else initial)
    return out, final


def run(
    problem: ScanProblem,
    given: tuple[Any, ...],
    numbers: Sequence[float] = (),
    code: Code = SCAN,
) -> None:
    """Run code on operands, results, an initial and a final state; each problem has one code."""
    given = tuple([None if x is None else x.resolve_conj().resolve_neg() for x in given])
    device = given[1].device
    key = (problem, device, *[None if x is None else _seen(x) for x in given])
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= 1024:
            _plans.clear()
        layouts = tuple([None if x is None else layout(x) for x in given])
        plan = _plans[key] = make_plan(problem, layouts, device, code=code)
    module = plan.module
    if module is None or module.current_device() == device.index:
        plan.run(given, numbers)
    else:
        with module.device(device):  # kernels are launched on the current one
            plan.run(given, numbers)


def _seen(x: Tensor) -> tuple[Any, ...]:
    """What :func:`layout` looks at."""
    return x.shape, x.stride(), x.data_ptr() % 16 == 0


class Launch:
    """One launch of a plan."""

    def __init__(
        self, kernel: Any, grid: tuple[int, int, int], sizes: tuple[int, ...], constants: Any
    ) -> None:
        self._kernel = kernel[grid]
        self._sizes = sizes
        self._constants = constants
        self._values = tuple([constants[name] for name in kernel.arg_names if name in constants])
        self._grid = grid
        self._compiled: Any = None

    def __call__(self, operands: Sequence[Any], numbers: Sequence[float]) -> None:
        """Triton looks up the kernel for the first operands; all others are of their kinds."""
        numbers = (*numbers, *NOUGHTS[len(numbers) :])
        if self._compiled is not None:
            self._compiled(*operands, *numbers, *self._sizes, *self._values)
            return
        compiled = self._kernel(*operands, *numbers, *self._sizes, **self._constants)
        if compiled is not None and torch.version.hip is None:  # ROCm's depend on storage, too
            self._compiled = compiled[self._grid]


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of a scan: one, or three where time is cut into chunks."""

    regime: Regime
    operands: int
    """How many there are."""
    ways: tuple[Way | None, ...]
    """Of the operands, the results, the initial and the final state."""
    module: Any
    """The device's, of torch; None for a CPU."""
    totals: Launch
    """Of chunks."""
    launch: Launch
    over_chunks: ScanProblem | None
    """The scan of the chunks' totals."""

    def run(self, given: tuple[Any, ...], numbers: Sequence[float]) -> None:
        """Write the result, and the final state if there is to be one."""
        *placed, initial, final = [
            None if way is None else (_parts(x), *way)
            for x, way in zip(given, self.ways, strict=True)
        ]
        operands, results = tuple(placed[: self.operands]), tuple(placed[self.operands :])
        if self.over_chunks is None:
            self.launch((operands, results, initial, final, None, None, None, None), numbers)
            return
        totals = products, sums, cuts, states = self._per_chunk(given[1].device)
        *found, starts = [None if y is None else _states(y) for y in totals]
        self.totals((operands, results, initial, None, *found, None), numbers)
        start = given[-2]
        if start is not None and self.regime.lane == 0:
            start = start.transpose(0, 2)
        scan(self.over_chunks, products, sums, start, cuts, states)
        self.launch((operands, results, initial, final, None, None, None, starts), numbers)

    def _per_chunk(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """A product, a sum, a cut and a state of every chunk, ``(planes, chunks, lanes)``."""
        problem = self.over_chunks
        assert problem is not None
        shape = problem.outer, problem.inner, problem.time
        memory = torch.empty((3, *shape), dtype=getattr(torch, problem.dtype), device=device)
        products, sums, states = memory.transpose(2, 3)
        cuts = None
        if problem.reset:
            cuts = torch.empty(shape, dtype=torch.bool, device=device).transpose(1, 2)
        return products, sums, cuts, states


_plans: dict[Any, Plan] = {}


def _states(x: Tensor) -> tuple[Any, ...]:
    """An operand of one state per chunk, ``(planes, chunks, lanes)``."""
    y = _parts(x)
    plane, chunk, lane = y.stride()[:3]
    return y, plane, lane, chunk


def make_plan(
    problem: ScanProblem,
    layouts: tuple[Layout | None, ...],
    device: torch.device,
    chosen: Regime | None = None,
    code: Code = SCAN,
) -> Plan:
    """How to run code for a problem whose operands, results and states lie in memory like that."""
    b, *results = (y for y in (layouts[1], *layouts[code.operands : -2]) if y is not None)
    if chosen is None:
        table = regime_for_tests if interpreting() else regime
        chosen = table(problem, b.strides, heavy=code.heavy)
    if not code.chunks:
        chosen = replace(chosen, chunk=0)
    vectors = all(fits(y, chosen, problem) for y in (b, *results))
    if not vectors:
        chosen = replace(chosen, vector=1)
    parts = 2 if problem.dtype.startswith("complex") else 1

    def way(y: Layout | None, parts: int) -> Way | None:
        if y is None:
            return None
        outer, step, inner = (s * parts for s in y.strides)
        plane, lane = (inner, outer) if chosen.lane == 0 else (outer, inner)
        if vectors and fits(y, chosen, problem):
            return (plane, lane) if chosen.kernel == "rows" else ((plane, step),)
        return plane, lane, step

    chunks = chosen.chunks(problem)
    over_chunks = None
    if chunks > 1:
        over_chunks = ScanProblem(
            outer=chosen.planes(problem),
            time=chunks,
            inner=chosen.rows(problem),
            dtype=problem.accumulate,
            a="full",
            reverse=problem.reverse,
            reset=problem.reset,
            initial=problem.initial,
        )
    own = {"V": chosen.vector, "ONCE": chosen.tiles(problem) == 1}
    if chosen.kernel == "columns":
        own = {"W": chosen.vector}
    constants = {
        "LANES": chosen.lanes,
        "STEPS": chosen.steps,
        **own,
        "KIND": code.kind or problem.a,
        "REVERSE": problem.reverse,
        "COMPLEX": parts == 2,
        "ACC": getattr(tl, REAL[problem.accumulate]),
        "START": code.start,
        "LOAD": code.load[chosen.kernel],
        "PREPARE": code.prepare,
        "FINISH": code.finish,
        **launch_options(chosen, device),
    }
    kernel, grid = KERNELS[chosen.kernel], (chosen.blocks(problem) * chunks, 1, 1)
    sizes = chosen.rows(problem), problem.time, chunks, chosen.chunk or chosen.tiles(problem)
    totals, launch = (Launch(kernel, grid, sizes, constants) for _ in range(2))
    return Plan(
        regime=chosen,
        operands=code.operands,
        ways=tuple(way(y, 1 if i in code.flags else parts) for i, y in enumerate(layouts)),
        module=None if device.type == "cpu" else torch.get_device_module(device),
        totals=totals,
        launch=launch,
        over_chunks=over_chunks,
    )


def regime_for_tests(problem: ScanProblem, b: Strides, heavy: bool) -> Regime:
    """For the interpreter, to which an operation on a large tile costs what one on a small does."""
    chosen = regime(problem, b, 256, heavy)
    room = (1 << 15) // chosen.steps if chosen.kernel == "rows" else 512
    lanes = max(chosen.lanes, min(room, power_of_two(chosen.rows(problem))))
    return replace(
        chosen,
        lanes=lanes,
        steps=min(chosen.steps, 8) if chosen.kernel == "columns" else chosen.steps,
    )


def fits(y: Layout, chosen: Regime, problem: ScanProblem) -> bool:
    """Whether an operand consists of aligned vectors, along the steps or along the lanes."""
    outer, step, inner = y.strides
    if chosen.kernel == "rows":
        along, others, n = step, (outer, inner), problem.time
        if chosen.steps < chosen.vector:
            return False
    else:
        lane, plane = (outer, inner) if chosen.lane == 0 else (inner, outer)
        along, others, n = lane, (plane, step), chosen.rows(problem)
    return y.aligned and along == 1 and all(k % chosen.vector == 0 for k in (*others, n))


def launch_options(chosen: Regime, device: torch.device) -> dict[str, Any]:
    """What is said to the compiler.

    Fused multiply-add rounds once where two operations round twice, and is faster.
    """
    options: dict[str, Any] = {"num_warps": chosen.warps, "enable_fp_fusion": True}
    if torch.version.hip is not None:
        options["num_warps"] = max(1, chosen.warps // 2)  # they have 64 lanes there
    elif device.type != "xpu" and chosen.kernel == "rows":
        options["maxnreg"] = REGISTERS if chosen.warps == 8 else ALL_REGISTERS
    return options


def _parts(x: Tensor) -> Tensor:
    """A tensor's memory; of complex numbers, that of their parts."""
    return torch.view_as_real(x) if x.is_complex() else x
