"""What an op costs: FLOP and bytes of the captured graph, and the roofline over them."""
