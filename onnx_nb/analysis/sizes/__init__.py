"""What can be told without running: shapes, parameters, MACs, bytes."""
