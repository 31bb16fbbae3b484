"""linscan: first-order linear recurrences at the speed of memory."""
