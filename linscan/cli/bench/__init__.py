"""``linscan bench``: a job by a loop, a matrix, chunks and every backend, checked, then timed."""
