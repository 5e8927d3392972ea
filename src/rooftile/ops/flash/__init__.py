"""The kernels behind ``rooftile.ops.attention``, and the choice among them."""
