"""What runs a model's layers: eager, direct or replayed CUDA graphs, behind one protocol."""
