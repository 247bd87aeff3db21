"""The classes of what functions return and take, for annotations.

>>> import onnx_nb
>>> def worst(comparison: onnx_nb.types.Comparison) -> onnx_nb.types.Point:
...     return comparison.ranked()[0]

``types.pyi`` lists them. Each is imported when it is first used.
"""

from onnx_nb import _lazy_names

__all__, __getattr__, __dir__ = _lazy_names(__name__)
