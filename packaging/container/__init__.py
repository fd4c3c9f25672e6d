"""The parts of packaging/sandbox: read box, layers, keeper, inside in this order."""
