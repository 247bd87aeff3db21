"""What a click asks: all there is to say of a node, a tensor, a scope, a cut, an overlay."""
