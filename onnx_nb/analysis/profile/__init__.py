"""What a run costs, measured: the profile of onnxruntime, mapped back to the nodes of the model."""
