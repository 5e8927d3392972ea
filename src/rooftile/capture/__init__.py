"""A PyTorch model to a Graph, without a GPU and without its weights."""
