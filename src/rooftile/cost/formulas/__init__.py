"""FLOP and bytes of every op, one family a file. No other place has such formulas."""
