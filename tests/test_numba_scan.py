"""What is particular to the compiled kernels: vectors, tiles, threads and the cache on disk."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOptionalSubscript=false

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linscan._problem import Kind, ScanProblem

numba = pytest.importorskip("numba")

from linscan_numba import BACKEND, _streaming, _threads  # noqa: E402

EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52, "complex64": 2.0**-23, "complex128": 2.0**-52}


def loop(
    a: Any, b: Any, initial: Any = None, reset: Any = None, reverse: bool = False, dtype: Any = None
) -> Any:
    """The definition, one step after the other, in ``dtype`` (by default wider than ``b``'s)."""
    if dtype is None:
        dtype = np.clongdouble if np.iscomplexobj(b) else np.longdouble
    a = np.broadcast_to(np.asarray(a, b.dtype), b.shape).astype(dtype)
    b = b.astype(dtype)
    cuts = np.zeros(b.shape, bool) if reset is None else np.broadcast_to(reset, b.shape)
    x = np.empty_like(b)
    state = None if initial is None else initial[:, 0].astype(dtype)
    steps = range(b.shape[1])
    with np.errstate(all="ignore"):
        for t in reversed(steps) if reverse else steps:
            x[:, t] = b[:, t]
            if state is not None:
                x[:, t] = np.where(cuts[:, t], b[:, t], a[:, t] * state + b[:, t])
            state = x[:, t]
    return x


def kind_of(a: Any, b: Any) -> Kind:
    if np.ndim(a) == 0:
        return "scalar"
    if a.shape[1] == 1:
        return "row"
    return "step" if a.shape[0] == a.shape[2] == 1 else "full"


def scan(
    a: Any, b: Any, initial: Any = None, reset: Any = None, reverse: bool = False, out: Any = None
) -> Any:
    outer, time, inner = b.shape
    problem = ScanProblem(
        outer,
        time,
        inner,
        str(b.dtype),
        kind_of(a, b),
        reverse,
        reset is not None,
        initial is not None,
        final=True,
    )
    x, final = BACKEND.scan(problem, a, b, initial, reset, out)
    if b.shape[1]:
        np.testing.assert_array_equal(final, x[:, :1] if reverse else x[:, -1:])
    return x


def assert_exact_enough(x: Any, a: Any, b: Any, *rest: Any, **options: Any) -> None:
    """At most twice the error of the loop in the same dtype, plus four units of the last place."""
    exact = loop(a, b, *rest, **options)
    scale = np.abs(exact).max(initial=0)
    own = np.abs(loop(a, b, *rest, **options, dtype=b.dtype) - exact).max(initial=0)
    assert np.abs(x - exact).max(initial=0) <= 2 * own + 4 * EPSILON[str(b.dtype)] * scale


def same_bits(x: Any, y: Any) -> bool:
    return np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


def normal(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def multipliers(kind: Kind, shape: tuple[int, int, int], dtype: str = "float32") -> Any:
    outer, time, inner = shape
    sizes = {"row": (outer, 1, inner), "step": (1, time, 1), "full": shape}
    if kind == "scalar":
        return 0.97
    w = normal(sizes[kind], dtype, seed=1)
    return (w / (0.1 + np.abs(w))).astype(dtype)


KINDS: tuple[Kind, ...] = ("scalar", "row", "step", "full")
REVERSE = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


@pytest.fixture
def divide(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """What has the work of the following scans divided into so many parts."""

    def into(parts: int) -> None:
        monkeypatch.setattr(_threads, "parts_of", lambda work: parts)
        monkeypatch.setattr(numba, "get_num_threads", lambda: parts)

    return into


# ------------------------------------------------------------------------------ vectors and tiles


@REVERSE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_of_vectors_and_tiles(dtype: str, kind: Kind, reverse: bool) -> None:
    for time in (*range(36), 511, 512, 513, 1023, 1024, 1025, 2049):
        shape = (2, time, 1)
        a, b = multipliers(kind, shape, dtype), normal(shape, dtype)
        initial, reset = normal((2, 1, 1), dtype, 2), normal(shape, seed=3) > 1
        for rest in ((None, None), (initial, None), (None, reset), (initial, reset)):
            x = scan(a, b, *rest, reverse=reverse)
            assert_exact_enough(x, a, b, *rest, reverse=reverse)


@REVERSE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_columns(dtype: str, kind: Kind, reverse: bool) -> None:
    for inner in (2, 7, 8, 15, 16, 17, 100, 1030):
        shape = (2, 31, inner)  # too little for threads
        a, b = multipliers(kind, shape, dtype), normal(shape, dtype)
        initial, reset = normal((2, 1, inner), dtype, 2), normal((1, 31, inner), seed=3) > 1
        for rest in ((None, None), (initial, reset)):
            x = scan(a, b, *rest, reverse=reverse)
            assert_exact_enough(x, a, b, *rest, reverse=reverse)


@pytest.mark.parametrize("a", [0.999, -0.999, 1.0, -1.0, 0.99999, 1.0001])
@pytest.mark.parametrize("kind", ["scalar", "full"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_multipliers_near_one_accumulate_no_error(dtype: str, kind: str, a: float) -> None:
    # The product of a vector of equal multipliers has the same rounding error every time.
    b = normal((1, 65537, 1), dtype)
    w = a if kind == "scalar" else np.full(b.shape, a, dtype)
    assert_exact_enough(scan(w, b), w, b)


def test_bits_depend_on_neither_batch_nor_alignment() -> None:
    a, b = multipliers("full", (5, 3000, 1)), normal((5, 3000, 1))
    whole = scan(a, b)
    for row in range(5):
        assert same_bits(scan(a[row : row + 1], b[row : row + 1]), whole[row : row + 1])
    shifted = np.empty(b.nbytes + 64, np.uint8)
    for offset in (1, 4, 20):
        moved = shifted[offset : offset + b.nbytes].view(np.float32).reshape(b.shape)
        moved[...] = b
        assert same_bits(scan(a, moved), whole)


def test_reverse_is_the_mirror_image() -> None:
    a, b = multipliers("full", (3, 2049, 1)), normal((3, 2049, 1))
    assert same_bits(scan(a[:, ::-1], b[:, ::-1], reverse=True)[:, ::-1], scan(a, b))


def test_bits_of_columns_do_not_depend_on_how_many_there_are() -> None:
    for time in (40, 700):
        a, b, initial = (normal((2, t, 50), seed=k) for k, t in enumerate((time, time, 1)))
        whole = scan(a, b, initial)
        for width in (2, 3, 15, 16, 17, 33):
            few = slice(None), slice(None), slice(width)
            x = scan(a[few].copy(), b[few].copy(), initial[few].copy())
            assert same_bits(x, whole[few])


# -------------------------------------------------------------------------------------- short rows


@REVERSE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_rows(dtype: str, kind: Kind, reverse: bool) -> None:
    for rows, time in ((1, 7), (8, 4), (16, 1), (17, 2), (17, 3), (33, 5), (40, 16), (70, 63)):
        shape = (rows, time, 1)
        a, b = multipliers(kind, shape, dtype), normal(shape, dtype)
        initial, reset = normal((rows, 1, 1), dtype, 2), normal(shape, seed=3) > 1
        for rest in ((None, None), (initial, None), (None, reset), (initial, reset)):
            x = scan(a, b, *rest, reverse=reverse)
            assert_exact_enough(x, a, b, *rest, reverse=reverse)
            last = slice(rows - 1, rows)
            alone = [y[last] if np.ndim(y) and len(y) == rows else y for y in (a, b, *rest)]
            assert same_bits(scan(*alone, reverse=reverse), x[last])


@REVERSE
def test_nothing_beside_short_rows_is_touched(reverse: bool) -> None:
    for time in (1, 2, 5, 15, 18):
        wide = np.full((34, time + 2, 1), np.nan, "float32")
        a, b, out = wide.copy(), wide.copy(), wide.copy()
        shape = (34, time, 1)
        a[:, 1:-1], b[:, 1:-1] = multipliers("full", shape), normal(shape)
        scan(a[:, 1:-1], b[:, 1:-1], reverse=reverse, out=out[:, 1:-1])
        assert np.isfinite(out[:, 1:-1]).all()
        assert np.isnan(out[:, [0, -1]]).all()


def test_bits_of_short_rows_do_not_depend_on_their_place() -> None:
    a, b = multipliers("full", (64, 30, 1)), normal((64, 30, 1))
    reset = normal(b.shape, seed=3) > 1
    whole = scan(a, b, reset=reset)
    for rows in (slice(0, 1), slice(1, 17), slice(5, 38), slice(None, None, 3)):
        assert same_bits(scan(a[rows], b[rows], reset=reset[rows]), whole[rows])
    columns: list[Any] = [np.ascontiguousarray(y.transpose(2, 1, 0)) for y in (a, b, reset)]
    assert same_bits(scan(columns[0], columns[1], reset=columns[2]), whole.transpose(2, 1, 0))
    out = np.empty((1, 30, 64), b.dtype).transpose(2, 1, 0)
    assert same_bits(scan(a, b, reset=reset, out=out), whole)
    turned: list[Any] = [y.transpose(2, 1, 0) for y in columns]
    assert same_bits(scan(turned[0], turned[1], reset=turned[2], out=out), whole)


def test_short_rows_are_streamed_to_any_address(
    monkeypatch: pytest.MonkeyPatch, divide: Callable[[int], None]
) -> None:
    divide(2)
    monkeypatch.setattr(_streaming, "pays", lambda size: size > 0)
    rows, time = (1 << 12) + 5, 33
    b = np.ones((rows, time, 1), "float32")
    b[:, 5] = np.arange(rows).reshape(-1, 1) % 7
    for first in (0, 5):
        out = np.zeros(b.size + 7, "float32")
        place = out[first : first + b.size].reshape(b.shape)
        for reverse in (False, True):
            x = scan(0.5, b, reverse=reverse, out=place)
            assert same_bits(x[[0, -1]], scan(0.5, b[[0, -1]], reverse=reverse))
            assert same_bits(x[35:70], scan(0.5, b[35:70], reverse=reverse))
            assert (out[:first] == 0).all()
            assert (out[first + b.size :] == 0).all()


# ----------------------------------------------------------------------------------------- layouts


def layouts(x: Any) -> Any:
    """The values of ``x`` in other memory."""
    outer, time, inner = x.shape
    for made in (
        np.empty((inner, time, outer), x.dtype).transpose(2, 1, 0),
        np.empty((outer, inner, time + 5), x.dtype).transpose(0, 2, 1)[:, 3:-2],
        np.empty((outer, 2 * time, inner), x.dtype)[:, ::2],
        np.empty((outer, time, 2 * inner), x.dtype)[::-1, ::-1, ::-2],
        np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape),
        np.empty((outer, 4096, inner), x.dtype)[:, :time],
    ):
        made[...] = x
        yield made


@REVERSE
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(3, 1100, 1), (2, 1100, 3), (2, 70, 40)])
def test_every_layout(shape: tuple[int, int, int], dtype: str, reverse: bool) -> None:
    a, b = multipliers("full", shape, dtype), normal(shape, dtype)
    initial, reset = normal((shape[0], 1, shape[2]), dtype, 2), normal(shape, seed=3) > 2
    expected = scan(a, b, initial, reset, reverse)
    assert_exact_enough(expected, a, b, initial, reset, reverse=reverse)
    tolerance = 40 * EPSILON[dtype] * np.abs(expected).max()
    for a_, b_, out in zip(layouts(a), layouts(b), layouts(np.zeros_like(b)), strict=True):
        for operands in ((a_, b), (a, b_)):
            x = scan(*operands, initial, reset, reverse)
            np.testing.assert_allclose(x, expected, rtol=0, atol=tolerance)
        assert scan(a, b, initial, reset, reverse, out) is out
        np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)
        scan(a_, b_, initial, reset, reverse, b_)  # in place
        np.testing.assert_allclose(b_, expected, rtol=0, atol=tolerance)


def test_broadcast_operands_are_not_materialised() -> None:
    b = normal((1, 2000, 1))
    problem = ScanProblem(300, 2000, 2, "float32", "full")
    x, _ = BACKEND.scan(problem, multipliers("full", (1, 2000, 1)), b, None, None, None)
    expected = scan(multipliers("full", (1, 2000, 1)), b)
    assert all(same_bits(x[o, :, i], expected[0, :, 0]) for o in (0, 299) for i in (0, 1))


# --------------------------------------------------------------------- where vectors see too much


@REVERSE
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_overflowing_product_times_zero(dtype: str, reverse: bool) -> None:
    b = np.zeros((2, 3000, 1), dtype)
    huge = 1e10 if dtype == "float32" else 1e80
    for a in (huge, np.full((2, 1, 1), huge, dtype), np.full(b.shape, huge, dtype)):
        np.testing.assert_array_equal(scan(a, b, reverse=reverse), b)


@REVERSE
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_inf_end_at_a_reset(dtype: str, reverse: bool) -> None:
    shape = (1, 2100, 1)
    for poison in (np.nan, np.inf):
        a, b = multipliers("full", shape, dtype), normal(shape, dtype)
        reset = np.zeros(shape, bool)
        b[0, [5, 1029], 0] = poison
        b[0, 2040, 0] = -poison
        reset[0, [3, 9, 1030, 1027, 2041, 2039], 0] = True
        a[reset] = poison
        for w in (a, 0.97):
            x = scan(w, b, reset=reset, reverse=reverse)
            expected = loop(w, b, reset=reset, reverse=reverse)
            finite = np.isfinite(expected)
            np.testing.assert_array_equal(np.isnan(x), np.isnan(expected))
            np.testing.assert_array_equal(x[~finite], expected[~finite].astype(dtype))
            np.testing.assert_allclose(x[finite], expected[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", [1, 20])
def test_the_first_multiplier_is_not_read_without_a_state(kind: Kind, inner: int) -> None:
    shape = (2, 40, inner)
    b = normal(shape)
    if kind in ("scalar", "row"):
        b = b[:, :1]
        a = np.nan if kind == "scalar" else np.full((2, 1, inner), np.nan, "float32")
        np.testing.assert_array_equal(scan(a, b), b)
    else:
        a = multipliers(kind, shape)
        a[:, 0] = np.nan
        assert np.isfinite(scan(a, b)).all()
        assert np.isnan(scan(a, b, normal((2, 1, inner), seed=2))).all()


def test_overflow_in_place_is_done_again_from_the_input() -> None:
    b = np.zeros((1, 3000, 1), "float32")
    b[0, 2000:, 0] = 1
    a = np.full(b.shape, 1e10, "float32")
    a[0, 1999:, 0] = 0.5
    expected = loop(a, b)
    scan(a, b, out=b)
    np.testing.assert_allclose(b, expected.astype("float32"), rtol=1e-6)


# ----------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("shape", [(1, 200_003, 1), (3, 70_001, 1), (9, 20_000, 1), (1, 999, 130)])
@pytest.mark.parametrize(
    ("dtype", "reverse"),
    [("float32", False), ("float32", True), ("float64", True), ("complex64", False)],
)
def test_bits_do_not_depend_on_threads(
    shape: tuple[int, int, int], dtype: str, reverse: bool, divide: Callable[[int], None]
) -> None:
    b = normal(shape, dtype)
    slow = np.full(shape, 1, dtype)  # nothing converges: a part is done again whole
    cases = [multipliers(kind, shape, dtype) for kind in KINDS]
    cases += [slow, -1.0, np.zeros(shape, dtype), np.full(shape, 0.99995, dtype)]
    for a in cases:
        divide(1)
        whole = scan(a, b, reverse=reverse)
        for parts in (2, 5):
            divide(parts)
            assert same_bits(whole, scan(a, b, reverse=reverse))


def test_a_pool_that_turns_out_to_sleep_while_a_call_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_threads, "_layer", None)

    def threads() -> int:
        _threads._layer = "workqueue"
        return 2

    b = normal((1, 200_003, 1))
    expected = scan(0.97, b)
    monkeypatch.setattr(_threads, "parts_of", lambda work: 2)
    monkeypatch.setattr(numba, "get_num_threads", threads)
    assert same_bits(scan(0.97, b), expected)


def test_fewer_threads_than_parts() -> None:
    b = normal((9, 20_000, 1))
    expected, before = scan(0.97, b), numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert same_bits(scan(0.97, b), expected)
    finally:
        numba.set_num_threads(before)


def test_zeros_of_either_sign_settle_alike(divide: Callable[[int], None]) -> None:
    b = np.zeros((1, 100_000, 1), "float32")
    b[0, 0, 0] = -1e-30
    b[0, 1::2, 0] = -0.0
    divide(2)
    parallel = scan(-0.5, b)
    divide(1)
    assert same_bits(parallel, scan(-0.5, b))


def test_long_rows_are_streamed_to_any_address(
    monkeypatch: pytest.MonkeyPatch, divide: Callable[[int], None]
) -> None:
    divide(2)
    monkeypatch.setattr(_streaming, "pays", lambda size: size > 0)
    n = (1 << 18) + 5
    b = np.ones((1, n, 1), "float32")
    out = np.zeros(n + 7, "float32")
    x = scan(0.5, b, out=out[5:-2].reshape(1, n, 1))
    np.testing.assert_allclose(x[0, [0, 1, 2, 1000, -1], 0], [1, 1.5, 1.75, 2, 2], rtol=1e-6)
    assert (out[:5] == 0).all()
    assert (out[-2:] == 0).all()
    divide(1)
    assert same_bits(x, scan(0.5, b))


@pytest.mark.parametrize("shape", [(64, 300, 1), (70, 33, 1), (2, 20, 1100), (1, 3000, 1)])
def test_rows_that_are_not_aligned_are_not_streamed(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_streaming, "pays", lambda size: size > 0)
    a, b = multipliers("full", shape), normal(shape)
    _, time, inner = shape
    pitch = 4 * time * inner + 1
    for first in (0, 1):
        memory = np.zeros(first + pitch * shape[0] + 64, np.uint8)
        out: Any = np.ndarray(shape, "float32", memory.data, first, (pitch, 4 * inner, 4))
        scan(a, b, out=out)
        assert same_bits(np.ascontiguousarray(out), scan(a, b))
        step = 4 * inner + 2
        memory = np.zeros(first + shape[0] * time * step + 64, np.uint8)
        out = np.ndarray(shape, "float32", memory.data, first, (time * step, step, 4))
        scan(a, b, out=out)
        np.testing.assert_allclose(out, scan(a, b), rtol=1e-4, atol=1e-5)


def test_neighbouring_columns_are_streamed_to_any_address(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2, 50, 1100)
    a, b = multipliers("full", shape), normal(shape)
    expected = scan(a, b)
    monkeypatch.setattr(_streaming, "pays", lambda size: size > 0)
    for first in (0, 5):
        out = np.zeros(b.size + 7, b.dtype)
        place = out[first : first + b.size].reshape(shape)
        assert same_bits(scan(a, b, out=place), expected)
        assert (out[:first] == 0).all()
        assert (out[first + b.size :] == 0).all()


def test_results_past_the_caches_are_larger_than_any_of_them(tmp_path: Path) -> None:
    largest = _streaming.largest_cache.__wrapped__
    assert largest(str(tmp_path)) == _streaming.UNKNOWN
    for index, text in enumerate(["48K\n", "2048K\n", "32M\n"]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "size").write_text(text)
    assert largest(str(tmp_path)) == 32 << 20
    (tmp_path / "index1" / "size").write_text("")
    assert largest(str(tmp_path)) == _streaming.UNKNOWN


def test_several_python_threads_at_once() -> None:
    shape = (4, 50_000, 1)
    a, b = multipliers("full", shape), normal(shape)
    expected = scan(a, b)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: scan(a, b), range(24)))
    assert all(same_bits(x, expected) for x in results)


def _in_child(queue: Any, a: Any, b: Any) -> None:
    queue.put(scan(a, b).tobytes())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork() -> None:
    shape = (4, 50_000, 1)
    a, b = multipliers("full", shape), normal(shape)
    expected = scan(a, b).tobytes()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, a, b))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0


# -------------------------------------------------------------------------------- a fresh process


def run_alone(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SCAN_ONES = """
    import numpy as np
    from linscan._problem import ScanProblem
    from linscan_numba import BACKEND
    b = np.ones((1, 4, 1), "float32")
    x, _ = BACKEND.scan(ScanProblem(1, 4, 1, "float32", "scalar"), 0.5, b, None, None, None)
    print(*x.ravel())
"""
AND_BACK = """
    p = ScanProblem(1, 4, 1, "float32", "scalar", reverse=True)
    x, _ = BACKEND.scan(p, 0.5, b, None, None, None)
    print(*x.ravel())
"""


def test_importing_the_package_does_not_import_numba() -> None:
    code = (
        "import sys, linscan_numba; linscan_numba.BACKEND.why_not(); print('numba' in sys.modules)"
    )
    assert run_alone(code) == "False"


def test_without_a_writable_cache_directory() -> None:
    # numba's own search for a directory made to fail: whoever runs this may write anywhere.
    nowhere = """
    from numba.core import caching
    caching.CacheImpl._locator_classes = []
    """
    assert run_alone(nowhere + SCAN_ONES, NUMBA_CACHE_DIR="") == "1.0 1.5 1.75 1.875"


def test_kernels_are_found_in_the_cache(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_alone(SCAN_ONES, NUMBA_CACHE_DIR=str(tmp_path)) == "1.0 1.5 1.75 1.875"
        kept = sorted(p.name for p in tmp_path.rglob("*.nbc"))
        assert len(kept) == 2  # the kernel, and what calls it


def test_every_kernel_has_a_cache_file_of_its_own(tmp_path: Path) -> None:
    # Kernels made from one function would share numbered files, which two processes that compile
    # at once mix up: a scan from the end then finds the code of one from the start.
    printed = run_alone(SCAN_ONES + AND_BACK, NUMBA_CACHE_DIR=str(tmp_path))
    assert printed.splitlines() == ["1.0 1.5 1.75 1.875", "1.875 1.75 1.5 1.0"]
    kept = {suffix: len(list(tmp_path.rglob(f"*.{suffix}"))) for suffix in ("nbi", "nbc")}
    assert kept == {"nbi": 3, "nbc": 3}


# ---------------------------------------------------------------------------------- torch, halves


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@REVERSE
def test_sixteen_bits_are_rounded_once(dtype: str, reverse: bool) -> None:
    torch = pytest.importorskip("torch")
    for shape in ((2, 1100, 1), (1, 50, 33), (200, 30, 1), (30, 200, 3)):
        outer, time, inner = shape
        a, b = torch.from_numpy(np.tanh(normal(shape))), torch.from_numpy(normal(shape, seed=1))
        a, b = a.to(getattr(torch, dtype)), b.to(getattr(torch, dtype))
        problem = ScanProblem(outer, time, inner, dtype, "full", reverse)
        x, _ = BACKEND.scan(problem, a, b, None, None, None)
        assert x.dtype == b.dtype
        exact = loop(a.float().numpy(), b.float().numpy(), reverse=reverse)
        rounded = torch.from_numpy(exact.astype("float64")).to(b.dtype)
        assert (x == rounded).float().mean() > 0.999


def test_torch_tensors_come_back_as_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    b = torch.ones(2, 5, 1)
    problem = ScanProblem(2, 5, 1, "float32", "scalar", final=True)
    x, final = BACKEND.scan(problem, 0.5, b, None, None, None)
    assert isinstance(x, torch.Tensor)
    assert torch.equal(final, x[:, -1:])
    assert BACKEND.scan(problem, 0.5, b, None, None, b)[0] is b
    assert torch.equal(b, x)
