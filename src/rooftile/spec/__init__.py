"""Facts from outside: GPUs, the limits of each architecture, dtypes."""
