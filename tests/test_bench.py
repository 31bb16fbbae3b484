"""``linscan bench``: what it says is right, and wrong results do not pass.  Nothing is timed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linscan
from linscan.cli import main
from linscan.cli.bench import _machine, _measure, _options, _preset
from linscan.cli.bench import _schemes as schemes
from linscan.cli.bench._jobs import JOBS, Setting, Work, double, make

LIBRARIES = ["numpy", "torch"]
SCHEMES = {
    "serial": schemes.serial,
    "matrix": schemes.matrix,
    "chunk": partial(schemes.chunk, size=8),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_measure, "SAMPLE", 0)
    monkeypatch.setattr(_measure, "TURNS", (1, 2))


def bench(*arguments: Any) -> int:
    return main(["bench", "--seconds", "0.001", "--arrays", "numpy", *map(str, arguments)])


def spoken(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


# The schemes, and the jobs in their terms ---------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_scheme_by_hand(scheme):
    b = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 4.0]])
    np.testing.assert_array_equal(scheme(0.5, b, False), [[1, 1.5, 1.75], [0, 0, 4]])
    np.testing.assert_array_equal(scheme(0.5, b, True), [[1.75, 1.5, 1], [1, 2, 4]])
    a = np.array([[9.0, 0.0, 2.0], [9.0, 1.0, 3.0]])
    np.testing.assert_array_equal(scheme(a, b, False), [[1, 1, 3], [0, 0, 4]])
    np.testing.assert_array_equal(scheme(a, b, True), [[10, 1, 1], [36, 4, 4]])


def settings() -> list[Setting]:
    plain = [Setting(job, "float64", arrays) for job in JOBS for arrays in LIBRARIES]
    first = [setting._replace(time_first=True) for setting in plain]
    episodes = [
        setting._replace(mask=mask, episode=episode)
        for setting in plain + first
        if JOBS[setting.job].episodes
        for mask, episode in [(0.7, float("inf")), (1.0, 5.0), (0.7, 5.0)]
    ]
    return plain + first + episodes


@pytest.mark.parametrize("setting", settings(), ids=lambda x: "-".join(map(str, x)))
def test_every_job_by_every_scheme_is_what_the_reference_says(setting: Setting):
    if setting.arrays == "torch":
        pytest.importorskip("torch")
    for time in (1, 2, 8, 21):
        work = make(setting, 3, time)
        exact = work.exact([0, 2])
        for scheme in SCHEMES.values():
            for x, y in zip(work.by_scheme(scheme), exact, strict=True):
                np.testing.assert_allclose(double(work.take(x, [0, 2])), y, rtol=0, atol=1e-12)


def test_data_are_what_the_options_say():
    work = make(Setting(mask=0.7, episode=20.0), 50, 1000)
    mask, terminated = work.operands["mask"], work.operands["terminated"]
    assert abs(mask.mean() - 0.7) < 0.01
    assert abs(terminated[mask].mean() - 1 / 20) < 0.005
    assert not terminated[~mask].any()
    assert make(Setting(time_first=True), 3, 5).operands["rewards"].shape == (5, 3)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (Setting(), 16),
        (Setting(mask=0.5, episode=9.0), 18),
        (Setting("returns"), 8),
        (Setting("td_lambda", "float64"), 24),
        (Setting("scan"), 12),
        (Setting("decay", "float16"), 4),
    ],
)
def test_minimal_bytes_per_element(setting: Setting, expected: int):
    assert setting.bytes(3, 5) == 15 * expected


# The command --------------------------------------------------------------------------------------


def test_the_figures_are_all_in_the_file(tmp_path: Path, capsys):
    file = tmp_path / "bench.json"
    assert bench("--shapes", "2x9", "3x4", "--mask", 0.8, "--no-png", "--json", file) == 0
    figures = json.loads(file.read_text())
    assert figures.keys() == {"format", "machine", "setting", "left_out", "results"}
    assert figures["setting"]["mask"] == 0.8
    assert figures["setting"]["episode"] is None
    here = [name for name, reason in linscan.backends().items() if reason is None]
    ours = [name for name in here if name != "torch"]
    ways = ["serial", "matrix", "chunk 64", "chunk 128", "chunk 256", *ours]
    results = figures["results"]
    assert [(x["rows"], x["time"], x["way"]) for x in results] == [
        (*shape, way) for shape in [(3, 4), (2, 9)] for way in ways
    ]
    for result in results:
        assert result["agrees"]
        assert result["ours"] == (result["way"] in here)
        assert result["seconds"]
        assert 0 <= result["error"] <= result["allowed"] < 1e-5
        assert result["times_copy"] > 0
        assert result["reason"] is None
    text = spoken(capsys)
    for way in ways:
        assert way in text
    assert "linscan.profile()" in text


@pytest.mark.parametrize("job", JOBS)
def test_every_job_runs(job: str, capsys):
    assert bench("--run", job, "--shapes", "2x5", "--time-first", "--no-png") == 0
    assert JOBS[job].function.__name__ in spoken(capsys)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_dtypes_on_torch(dtype: str, tmp_path: Path):
    pytest.importorskip("torch")
    file = tmp_path / "bench.json"
    options = ["--dtype", dtype, "--arrays", "torch", "--episode", "5", "--no-png", "--json", file]
    assert bench("--shapes", "4x33", *options) == 0
    results = json.loads(file.read_text())["results"]
    assert {"serial", "matrix", "torch"} <= {x["way"] for x in results if x["seconds"]}


@pytest.mark.parametrize("fault", [1e-4, np.nan])
def test_a_backend_that_disagrees_is_reported(monkeypatch, capsys, tmp_path: Path, fault: float):
    right = linscan.gae

    def gae(*arguments: Any, backend: str, **keywords: Any) -> Any:
        advantages, returns = right(*arguments, backend=backend, **keywords)
        if backend == "numpy":
            returns[2, 3] += fault
        return advantages, returns

    monkeypatch.setitem(JOBS, "gae", JOBS["gae"]._replace(function=gae))
    file = tmp_path / "bench.json"
    assert bench("--shapes", "4x50", "--no-png", "--json", file) == 1
    text = spoken(capsys)
    assert "Wrong: numpy at 4×50 is off by" in text
    assert text.count("Wrong:") == 1
    results = json.loads(file.read_text(), parse_constant=pytest.fail)["results"]
    assert [x["way"] for x in results if not x["agrees"]] == ["numpy"]


def test_what_a_backend_refuses_is_left_out_with_its_reason(monkeypatch, capsys):
    def refuse(**keywords: Any) -> Any:
        raise linscan.BackendUnsupported("no [such] thing")

    monkeypatch.setitem(JOBS, "gae", JOBS["gae"]._replace(function=refuse))
    assert bench("--shapes", "2x5", "--no-png") == 0
    text = spoken(capsys)
    assert "Left out: numpy: it cannot do this: no [such] thing." in text
    assert "No backend of linscan did this job." in text


def test_the_matrix_is_refused_with_its_memory(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr(_machine, "free_bytes", lambda device: 3 << 20)
    file = tmp_path / "bench.json"
    assert bench("--shapes", "2x300", "2x400", "--no-png", "--json", file) == 0
    results = json.loads(file.read_text())["results"]
    below, above = (x for x in results if x["way"] == "matrix")
    assert below["seconds"]
    assert not above["seconds"]
    assert above["reason"] == "needs 1.83 MiB, and of 3 MiB free it may take half"  # 12·400² bytes
    assert "Left out: matrix: it needs 1.83 MiB" in spoken(capsys)


def test_matrix_bytes_are_what_it_takes():
    for rows, constant in [(1, True), (3, False)]:
        b = np.ones((rows, 1500), np.float32)
        found = _machine.watch(
            lambda b=b, constant=constant: schemes.matrix(0.5 if constant else b, b, False), "cpu"
        )
        if found.peak_bytes is None:
            pytest.skip("nobody counts memory here")
        promised = schemes.matrix_bytes(rows, 1500, 4, constant)
        assert 0.8 * promised < found.peak_bytes < 1.6 * promised + (4 << 20)


def test_what_would_take_too_long_is_left_out_with_what_it_would_take():
    before = [_measure.Result("serial", False, 8, 100, seconds=[0.5])]
    result = _measure.Result("serial", False, 8, 1000)
    assert _measure.too_long(result, before, limit=5.1) is None
    reason = _measure.too_long(result, before, limit=4.9)
    assert reason == "would take some 5 s, by its 0.5 s at 8×100; --limit 4.9 leaves it out"
    before[0].way = result.way = "matrix"
    assert "some 50 s" in str(_measure.too_long(result, before, limit=49))


def test_slow_ways_are_timed_once_after_a_call_for_nothing():
    setting = Setting()
    calls: dict[str, int] = {}

    def counted(way: _measure.Way) -> _measure.Way:
        def compute(work: Work) -> tuple[Any, ...]:
            calls[way.name] = calls.get(way.name, 0) + 1
            return way.compute(work)

        return way._replace(compute=compute)

    ways = [counted(way) for way in _measure.ways(setting)]
    results = _measure.compare(
        setting,
        2,
        20,
        ways,
        before=[],
        budget=0,
        limit=1,
        step=lambda description: None,
    )
    assert all(len(result.seconds) == 1 and result.spread is None for result in results)
    assert calls == {way.name: 2 for way in ways}


def test_a_picture_of_lines_and_one_of_bars(monkeypatch, tmp_path: Path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(_machine, "busy", lambda: "The load is 99.0 on 2 cores.")
    for shapes in (["2x8", "2x16"], ["2x8"], ["2x8", "3x8", "3x9"]):
        file = tmp_path / f"{len(shapes)}.png"
        assert bench("--shapes", *shapes, "--png", file) == 0
        assert file.read_bytes().startswith(b"\x89PNG")


def test_the_title_of_the_picture():
    pytest.importorskip("matplotlib")
    from linscan.cli.bench import _picture

    def found(way: str, seconds: float, ours: bool = False) -> _measure.Result:
        return _measure.Result(way, ours, 2, 8, seconds=[seconds])

    alone = [found("numba", 0.002, ours=True)]
    assert _picture.finding(Setting(), alone) == "gae of 2×8: 2.00 ms"
    rivals = [found("serial", 0.1), found("chunk 64", 0.02), found("chunk 128", 0.01)]
    title = "gae of 2×8: 2.00 ms, 50 × as fast as a loop, 5 × as fast as chunks"
    assert _picture.finding(Setting(), [*rivals, *alone]) == title


def test_the_preset_is_the_published_table(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr(
        _preset,
        "shapes",
        lambda quick: [(rows // 64, time // 1024) for rows, time in _preset.PUBLISHED],
    )
    file = tmp_path / "bench.json"
    assert bench("--preset", "chunk-scan-2025", "--no-png", "--json", file) == 0
    text = spoken(capsys)
    for figure in (
        *("2.902570", "0.232986", "0.017645", "0.009134"),
        *("5.935994", "0.070122", "0.034059", "0.018390"),
    ):
        assert figure in text
    assert "a GPU that is not named" in text
    assert _machine.cpu().split()[0] in text
    assert len({x["rows"] for x in json.loads(file.read_text())["results"]}) == 2


def test_the_preset_has_the_published_shapes():
    assert _preset.shapes(quick=False) == [(128, 65536), (256, 131072)]
    assert _preset.shapes(quick=True) == [(8, 4096), (16, 8192)]


# Usage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "64"], "not like 64x2048"),
        (["--shapes", "0x5"], "not like 64x2048"),
        (["--mask", "1.5"], "not a share"),
        (["--episode", "0"], "not positive"),
        (["--run", "scan", "--mask", "0.5"], "not for --run scan"),
        (["--dtype", "bfloat16"], "NumPy has no such dtype"),
        (["--device", "cuda"], "needs torch's arrays"),
        (["--quick"], "goes with --preset"),
        (["--preset", "chunk-scan-2025", "--dtype", "float64"], "leave --run, --shapes, --dtype"),
        (["--preset", "chunk-scan-2025", "--shapes", "4x16"], "leave --run, --shapes, --dtype"),
        (["--json", "no/such/folder/bench.json"], "--json no/such/folder/bench.json: cannot"),
        (["--json", "."], "--json .: cannot be written"),
        (["--png", "no/such/folder/bench.png"], "--png no/such/folder/bench.png: cannot"),
        (["--png", "bench.svg"], "its name ends in .png"),
        (["--png", "bench.png", "--no-png"], "not allowed with argument"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, capsys):
    with pytest.raises(SystemExit) as exit:
        bench(*arguments)
    assert exit.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_without_matplotlib_a_picture_that_was_asked_for_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(_options, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        bench("--png", "picture.png")
    assert "pip install 'linscan[bench]'" in capsys.readouterr().err


def test_without_matplotlib_there_is_no_picture(monkeypatch, capsys):
    monkeypatch.setattr("linscan.cli.bench._run.find_spec", lambda name: None)
    assert bench("--shapes", "2x5") == 0
    assert "No picture: it takes matplotlib, `pip install 'linscan[bench]'`" in spoken(capsys)


def test_help_fits_and_names_the_options(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["bench", "--help"])
    assert exit.value.code == 0
    text = spoken(capsys)
    for option in ("--run", "--shapes", "--mask", "--episode", "--preset", "--json", "--png"):
        assert option in text
