"""What a run costs, counted: parameters, MACs, bytes."""
