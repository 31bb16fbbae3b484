"""Return estimators: elementwise maps around one scan, one file per family."""
