"""What corresponds in two graphs: node matching and diff. No values."""
