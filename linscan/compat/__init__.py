"""Drop-in functions for frameworks that compute returns themselves: one module for each.

They take and give what the originals do: names and order of arguments, layout, flags, dtype.  Where
an original is wrong they are wrong in the same way, unless ``fix=True``; each docstring says what
differs.  Three things differ everywhere, because they are not conventions: cuts and holes select
instead of multiplying by zero, so that NaN does not cross them; the recurrences of 16-bit types run
in float32; and no input is written to, unless that is what the original is for.

``import linscan`` imports none of them: ``import linscan.compat.verl`` does.
"""
