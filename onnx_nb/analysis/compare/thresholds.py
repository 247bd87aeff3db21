"""The numbers that decide a verdict: what stands out, what corresponds, what is rounding, what is a faulty quantizer.

After the unit, each says which row of docs/faults.md it decides, by what its code does. "No row" stands where no
planted fault depends on it: tests of the function that reads it do. Rows are of the tables of `compare_torch`; *In
quantized models* is the paragraph on those of `compare`.
"""

from __future__ import annotations

from typing import Final

# --- what stands out ------------------------------------------------------------------------------------------------

OUTLIER_FACTOR: Final = 10.0
"""Factor over the median of its kind, or over all earlier errors, above which a point is reported. All rows of
*first*, and the exports without a fault."""
ROUNDING_ULPS: Final = 32
"""Units of its type's precision up to which rounding explains an error. Row *epsilon*, whose errors are the
smallest."""
MEDIAN_FLOOR: Final = 2.0**-23
"""Relative error that isolated errors are divided by at least: where most are exact, rounding must not stand out.
The exports without a fault."""
FACTOR_ELEMENTS: Final = 8
"""Nonzero elements that a value needs for a factor to be named. No row."""
FACTOR_ERROR: Final = 1e-3
"""Relative error above which a factor is named. No row: *factor* and *scale* change values by more."""
FACTOR_RESIDUE: Final = 0.01
"""Share of the error that may be left once the factor is undone. No row."""

# --- what corresponds -----------------------------------------------------------------------------------------------

MATCH_DISTANCE: Final = 0.1
"""Distance relative to the norm beyond which a match of two models' values is doubtful. No row: the faults of
quantized models change values by less or by more than rounding, and names match them."""
PREFERENCE_FACTOR: Final = 8.0
"""Factor by which a later option must be nearer than the first to be preferred. No row."""
VALUE_MATCH_DISTANCE: Final = 0.05
"""Distance relative to the norm up to which two values match without a common name. No row."""
VALUE_MATCH_ELEMENTS: Final = 8
"""Elements below which two values may be equal by chance. No row."""
FEED_DISTANCE: Final = 1e-2
"""Distance relative to the norm beyond which two inputs are not the same but for rounding. No row: dumps are not
judged."""
TIE_DISTANCE: Final = 1e-2
"""Distance, relative to the largest value, up to which a tensor inside a module is the output that it may be. Row
*shared call*, where only values tell the calls apart."""
CONSTANT_DISTANCE: Final = 1e-6
"""Distance, relative to the largest value, between a weight and an output that the exporter computed. Row *table*."""
RERUN_DISTANCE: Final = 1e-4
"""Distance, relative to the largest value, between the results of an operation in two runs of torch. No row: it is the
column *drill* of functions inside attention."""

# --- doubtful pairs -------------------------------------------------------------------------------------------------

EXACT_ERROR: Final = 1e-5
"""Relative error of a region that needs no explanation: if all are below, no pair is doubted. No row: faults are
above."""
CONTRADICTED_ERROR: Final = 1e-3
"""Relative error of a tensor from which on it is perhaps not the one that the reference's value belongs to. The
wrongly paired points, which `python -m tests.faults` counts below its tables."""
HARM_RATIO: Final = 1e-4
"""Ratio of the error after a tensor to its own, below which it is not the reference's value. As the one before."""

# --- operations and their nodes -------------------------------------------------------------------------------------

MISPLACED_COST: Final = 1.0
"""Cost of a node that the operation around it is not exported as, and of an operation without a node. Rows of
*drill*."""
OMITTED_COST: Final = 0.3
"""Cost of a change of layout without a node: exporters merge it with others. Rows *perm*, *missing transpose* of
*drill*."""
ADDED_COST: Final = 0.1
"""Cost of a node that exporters add anywhere. Rows of *drill*."""
UNKNOWN_COST: Final = 0.3
"""Cost of a node of an operation that the table of operations lacks. No row: it has those of all architectures."""
OTHER_LINE_COST: Final = 0.2
"""Cost of a node from another line of Python: less than `OMITTED_COST`, as an exporter may note the line of the
caller. Rows of *drill*."""
OTHER_INPUTS_COST: Final = 0.05
"""Cost of a node that reads known tensors that torch's operation does not: it decides between equal costs. Row
*swapped inputs* of *drill*."""
OTHER_ORDER_COST: Final = 0.7
"""Cost of a Transpose with another permutation. Rows *perm* and *missing transpose* of *drill*."""
WEIGHT_ULPS: Final = 8
"""Units of its type's precision up to which a weight is the parameter. Row *weight*, and *factor* behind a
convolution that includes its normalization."""

# --- quantizers -----------------------------------------------------------------------------------------------------

SCALE_EXCESS: Final = 2.5
"""Factor over the error of a fitted scale from which on a quantizer is faulty. *In quantized models*: a scale four
times too large, and the models without a fault."""
SMOOTHING_GAIN: Final = 1.6
"""Factor by which smoothing makes the error of a product smaller, from which on a weight's input channels are outliers.
*In quantized models*: weights of 4 bits behind channels far larger than the others."""
SALIENT_POWER: Final = 16.0
"""Factor over the median power from which on an input channel is far larger than the others. As the one before."""
READING_GAIN: Final = 16.0
"""Factor by which the squared error of a weight is less with its mistake undone. *In quantized models*: weights read
with another zero point, axis, block size or order of nibbles."""
READING_RESIDUE: Final = 0.16
"""Mean squared error in steps that rounding leaves, 1/12 if values are anywhere between levels. As the one before."""
CLIPPED_ERROR: Final = 0.03
"""Relative error of a tensor whose range clips, however few values, from which on it is faulty: a few belong to any
calibration. *In quantized models*: a range that ends at the 90th percentile, or that lacks one value in a thousand."""
LOST_SHARE: Final = 0.25
"""Share of channels that outliers cost at least. *In quantized models*: channels far larger than the others."""
OUTLIER_RANGE: Final = 12.0
"""Factor over the median range of all channels from which on a channel is an outlier. As the one before."""
LEVELS_OF_CHANNEL: Final = 4
"""Levels below which a channel is lost. As the one before."""
