"""How well the engine's choice of nodes and GPUs packs: the inflation experiment on traces."""
