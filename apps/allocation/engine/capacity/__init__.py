"""What is free in pools, on nodes and of GPUs."""
