"""How a model is spread over devices: axes, the mesh, collectives, and data-parallel strategies."""
