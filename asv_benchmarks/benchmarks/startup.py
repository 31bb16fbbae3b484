"""What a new process waits for."""


class Startup:
    """Each sample is a process of its own; the time of Python's start is not in it."""

    repeat = (5, 10, 5.0)

    def timeraw_import(self) -> str:
        """``import linscan``: NumPy, and no backend."""
        return "import linscan"

    def timeraw_first_call(self) -> tuple[str, str]:
        """Backends are looked up and imported, compiled kernels come from their cache."""
        return (
            "linscan.gae(x, x, gamma=0.99, lam=0.95)",
            "import linscan, numpy as np; x = np.ones((64, 2048), np.float32)",
        )
