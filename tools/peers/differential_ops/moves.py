"""Operators that move or resample elements, or make them from shapes."""

import numpy
import onnx
from onnx import helper

from .drawing import ANY, BOOL, F32, F64, I32, I64, I8, U32, U64, U8, Redraw, axis_of, operator, same_type, since, split_off


@operator("Pad")
def pad(d, op):
    a = d.value(ANY if since(d, op) >= 13 else (F32,), rank=(1, 4))
    mode = d.pick([None, "constant", "reflect", "edge"] + (["wrap"] if since(d, op) >= 19 else []))
    ends = [d.integer(0, 3) for _ in range(2 * d[a].ndim)]
    if d.chance(0.15):
        ends = [end - 2 for end in ends]
    if d[a].size == 0 or any(low + high + size < 1 for low, high, size in zip(ends, ends[d[a].ndim:], d[a].shape)):
        raise Redraw
    if mode == "reflect":
        ends = [min(end, size - 1) for end, size in zip(ends, d[a].shape * 2)]
    if since(d, op) < 11:
        d.emit(op, [a], pads=ends, mode=mode, value=d.pick([None, 0.5]))
        return
    value = d.add(d.array(d[a].dtype, []), True) if mode in (None, "constant") and d.chance(0.5) else ""
    axes = ""
    if since(d, op) >= 18 and d.chance(0.3):
        chosen = d.random.permutation(d[a].ndim)[: d.integer(1, d[a].ndim)].tolist()
        ends = [ends[axis] for axis in chosen] + [ends[axis + d[a].ndim] for axis in chosen]
        axes = d.known(chosen)
    d.emit(op, [a, d.known(ends), value, axes], mode=mode)


@operator("Transpose")
def transpose(d, op):
    a = d.value(ANY, rank=(1, 5))
    d.emit(op, [a], perm=d.pick([None, d.random.permutation(d[a].ndim).tolist()]))


@operator("Concat")
def concat(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    others = []
    for _ in range(d.integer(0, 3)):
        dims = list(d[a].shape)
        dims[axis] = d.integer(0 if d.chance(0.1) else 1, 5)
        others.append(same_type(d, a, dims))
    d.emit(op, [*others, a] if d.chance(0.5) else [a, *others], axis=axis)


@operator("Split")
def split(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    size = d[a].shape[axis]
    parts = d.integer(1, min(size, 4)) if size else 1
    cuts = sorted(d.integer(0, size) for _ in range(parts - 1))
    sizes = numpy.diff([0, *cuts, size]).tolist()
    inputs, given = split_off(d, sizes, "split", since(d, op) >= 13)
    if since(d, op) >= 18 and d.chance(0.4):
        inputs, given = [], {"num_outputs": parts}
    elif size % parts == 0 and since(d, op) < 18 and d.chance(0.4):
        inputs, given = [], {}
    d.emit(op, [a, *inputs], parts, **given, axis=axis)


@operator("Slice")
def slices(d, op):
    a = d.value(ANY, rank=(1, 4))
    axes = d.random.permutation(d[a].ndim)[: d.integer(1, d[a].ndim)].tolist()
    steps = [d.pick([1, 1, 1, 2, 3, -1, -2]) for _ in axes] if since(d, op) >= 10 else [1] * len(axes)
    starts, ends = [], []
    for axis, step in zip(axes, steps):
        size = d[a].shape[axis]
        low, high = d.integer(-size, size), d.pick([d.integer(0, size), size, 2**31 - 1, -1])
        starts.append(low if step > 0 else d.pick([size - 1, -1, 2**31 - 1]))
        ends.append(high if step > 0 else d.pick([0, -size - 1, -(2**31)]))
    if since(d, op) < 10:
        d.emit(op, [a], starts=starts, ends=ends, axes=axes)
        return
    kind = d.pick([I32, I64])
    if d.chance(0.2) and steps == [1] * len(axes) and axes == list(range(len(axes))):
        d.emit(op, [a, d.known(starts, kind), d.known(ends, kind)])
    else:
        axes = [axis - d[a].ndim if d.chance(0.3) else axis for axis in axes]
        d.emit(op, [a, d.known(starts, kind), d.known(ends, kind), d.known(axes, kind), d.known(steps, kind)])


def indices(d, dims, size, negative=True):
    if size == 0:
        raise Redraw
    return d.new(d.random.integers(-size if negative else 0, size, dims).astype(d.pick([I64, I64, I32])))


@operator("Gather")
def gather(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    d.emit(op, [a, indices(d, d.dims(0, 2, 4), d[a].shape[axis], since(d, op) >= 11)], axis=axis)


@operator("GatherElements")
def gather_elements(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    dims = [d.integer(1, size) if size else 0 for size in d[a].shape]
    dims[axis] = d.integer(1, 5)
    d.emit(op, [a, indices(d, dims, d[a].shape[axis])], axis=axis)


def tuples(d, shape, count, depth):
    parts = [d.random.integers(0, max(size, 1), count) for size in shape[:depth]]
    if 0 in shape[:depth]:
        raise Redraw
    return numpy.stack(parts, -1).astype(I64)


@operator("GatherND")
def gather_nd(d, op):
    a = d.value(ANY, rank=(1, 4))
    batch = d.integer(0, min(d[a].ndim - 1, 1)) if since(d, op) >= 12 else 0
    depth = d.integer(1, d[a].ndim - batch)
    given = tuples(d, d[a].shape[batch:], [*d[a].shape[:batch], *d.dims(0 if batch else 1, 2, 3)], depth)
    d.emit(op, [a, d.new(given)], batch_dims=batch or None)


@operator("ScatterElements", "Scatter")
def scatter_elements(d, op):
    a = d.value(ANY, rank=(1, 3))
    axis = axis_of(d, d[a].ndim)
    dims = [d.integer(1, size) if size else 0 for size in d[a].shape]
    if 0 in dims:
        raise Redraw
    size = d[a].shape[axis]
    reduction = d.pick([None, None, "none"] + (["add", "mul"] if since(d, op) >= 16 else []) + (["max", "min"] if since(d, op) >= 18 else []))
    if op == "Scatter" or d[a].dtype.kind == "b":
        reduction = None
    if reduction in (None, "none"):  # all different
        dims[axis] = min(dims[axis], size)
        where = numpy.argsort(d.random.random([*dims[:axis % len(dims)], size, *dims[axis % len(dims) + 1:]]), axis).take(range(dims[axis]), axis)
    else:
        dims[axis] = d.integer(1, 5)
        where = d.random.integers(-size, size, dims)
    where = d.new(numpy.ascontiguousarray(where).astype(d.pick([I64, I32])))
    d.emit(op, [a, where, d.new(d.array(d[a].dtype, dims))], axis=axis, reduction=reduction)


@operator("ScatterND")
def scatter_nd(d, op):
    a = d.value(ANY, rank=(1, 4))
    depth = d.integer(1, d[a].ndim)
    where = tuples(d, d[a].shape, [d.integer(1, 4)], depth)
    reduction = d.pick([None, "none"] + (["add", "mul"] if since(d, op) >= 16 else []) + (["max", "min"] if since(d, op) >= 18 else []))
    if d[a].dtype.kind == "b":
        reduction = None
    if reduction in (None, "none"):
        where = numpy.unique(where, axis=0)
    updates = d.new(d.array(d[a].dtype, [len(where), *d[a].shape[depth:]]))
    d.emit(op, [a, d.new(where), updates], reduction=reduction)


@operator("OneHot")
def one_hot(d, op):
    where = d.value((I64, I32, F32), rank=(1, 3), fits=lambda array: array.dtype.kind != "f" or (array == numpy.round(array)).all())
    depth = d.known(d.integer(1, 8), d.pick([I64, I32]))
    d.emit(op, [where, depth, d.add(d.array(d.pick([F32, I32, I64]), [2]), d.chance(0.7))], axis=d.pick([None, axis_of(d, d[where].ndim + 1)]))


@operator("Compress")
def compress(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = d.pick([None, axis_of(d, d[a].ndim)])
    length = d[a].size if axis is None else d[a].shape[axis]
    if length == 0:
        raise Redraw
    d.emit(op, [a, d.known(d.random.random(d.integer(1, max(1, length))) < 0.5, BOOL)], axis=axis)


@operator("Trilu")
def trilu(d, op):
    a = d.value(ANY, rank=(2, 4))
    d.emit(op, [a] + ([d.known(d.integer(-4, 4))] if d.chance(0.6) else []), upper=d.pick([None, 0, 1]))


@operator("EyeLike")
def eye_like(d, op):
    a = d.value(ANY, rank=(2, 2))
    d.emit(op, [a], k=d.pick([None, d.integer(-3, 3)]), dtype=d.pick([None, 1, 7]))


@operator("CenterCropPad")
def center_crop_pad(d, op):
    a = d.value(ANY, rank=(1, 4))
    axes = d.pick([None, d.random.permutation(d[a].ndim)[: d.integer(1, d[a].ndim)].tolist()])
    d.emit(op, [a, d.known([d.integer(1, 8) for _ in (axes or range(d[a].ndim))])], axes=axes)


@operator("Expand")
def expand(d, op):
    a = d.value(ANY, rank=(0, 4))
    dims = [d.integer(1, 4) if size == 1 else d.pick([1, size]) for size in d[a].shape]
    d.emit(op, [a, d.known([d.integer(1, 3)] * d.integer(0, 1) + dims)])


@operator("Tile")
def tile(d, op):
    a = d.value(ANY, rank=(1, 4))
    d.emit(op, [a, d.known([d.integer(0 if d.chance(0.05) else 1, 3) for _ in d[a].shape])])


@operator("DepthToSpace", "SpaceToDepth")
def depth_space(d, op):
    b = d.integer(1, 3)
    n, c, h, w = (d.integer(1, 3) for _ in range(4))
    a = d.value((F32, F32, F64), dims=[n, c * b * b, h, w] if op == "DepthToSpace" else [n, c, h * b, w * b])
    d.emit(op, [a], blocksize=b, mode=d.pick([None, "DCR", "CRD"]))


@operator("ReverseSequence")
def reverse_sequence(d, op):
    a = d.value(ANY, rank=(2, 4))
    time = d.integer(0, 1)
    if 0 in d[a].shape[:2]:
        raise Redraw
    lengths = [d.integer(1, d[a].shape[time]) for _ in range(d[a].shape[1 - time])]
    d.emit(op, [a, d.known(lengths)], time_axis=time, batch_axis=1 - time)


# Images.
@operator("Resize", "Upsample")
def resize(d, op):
    types = (F32, F32, F32, U8, I8, I32) if since(d, op) >= 11 else (F32,)
    a = d.value(types, dims=[d.integer(1, 2), d.integer(1, 4), *(d.integer(1, 8) for _ in range(d.pick([1, 2, 2, 2])))])
    mode = d.pick([None, "nearest", "linear"] + (["cubic"] if since(d, op) >= 11 else []))
    scales = [1.0, 1.0] + [d.pick([0.3, 0.5, 0.75, 1, 1.5, 2, 2.6, 3]) for _ in range(d[a].ndim - 2)]
    if op == "Upsample":
        scales = [max(1.0, scale) for scale in scales]
        if since(d, op) < 9:
            d.emit(op, [a], mode=mode, scales=scales)
        else:
            d.emit(op, [a, d.known(scales, F32)], mode=mode)
        return
    if since(d, op) < 11:
        d.emit(op, [a, d.known(scales, F32)], mode=mode)
        return
    sizes = [max(1, int(size * scale)) for size, scale in zip(d[a].shape, scales)]
    given = {"mode": mode, "nearest_mode": d.pick([None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]) if mode in (None, "nearest") else None,
             "coordinate_transformation_mode": d.pick([None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
                                                      + (["half_pixel_symmetric"] if since(d, op) >= 19 else [])
                                                      + (["tf_half_pixel_for_nn"] if since(d, op) < 13 else [])
                                                      + (["tf_crop_and_resize"] if since(d, op) >= 11 else []))}  # fmt: skip
    if mode == "cubic":
        given.update(cubic_coeff_a=d.pick([None, -0.5]), exclude_outside=d.pick([None, 0, 1]))
    if since(d, op) >= 18 and mode in ("linear", "cubic") and d.chance(0.3):
        given["antialias"] = 1
    roi = ""
    if given["coordinate_transformation_mode"] == "tf_crop_and_resize":
        begin = [0.0, 0.0] + [d.pick([0.0, 0.2]) for _ in sizes[2:]]
        roi = d.known(begin + [1.0, 1.0] + [d.pick([0.7, 1.0, 1.2]) for _ in sizes[2:]], F32)
        given["extrapolation_value"] = d.pick([None, 9.0])
    elif since(d, op) < 13:
        roi = d.add(numpy.zeros(0, F32), True)
    by_size = d.chance(0.4)
    if since(d, op) >= 18 and not roi and d.chance(0.3):
        given["axes"] = list(range(2, d[a].ndim))
        sizes, scales = sizes[2:], scales[2:]
        if by_size and d.chance(0.3):
            given["keep_aspect_ratio_policy"] = d.pick(["stretch", "not_larger", "not_smaller"])
    no_scales = d.add(numpy.zeros(0, F32), True) if since(d, op) < 13 and by_size else ""
    d.emit(op, [a, roi, no_scales, d.known(sizes)] if by_size else [a, roi, d.known(scales, F32)], **given)


@operator("GridSample")
def grid_sample(d, op):
    a = d.value(dims=[d.integer(1, 2), d.integer(1, 3), d.integer(1, 6), d.integer(1, 6)])
    grid = d.new(d.random.uniform(-1.2, 1.2, [d[a].shape[0], d.integer(1, 4), d.integer(1, 4), 2]).astype(d[a].dtype))
    modes = ["bilinear", "nearest", "bicubic"] if since(d, op) < 20 else ["linear", "nearest", "cubic"]
    d.emit(op, [a, grid], mode=d.pick([None, *modes]), padding_mode=d.pick([None, "zeros", "border", "reflection"]),
           align_corners=d.pick([None, 0, 1]))  # fmt: skip


@operator("AffineGrid")
def affine_grid(d, op):
    n = d.integer(1, 2)
    rank = d.pick([2, 2, 3])
    a = d.value(dims=[n, rank, rank + 1])
    d.emit(op, [a, d.known([n, d.integer(1, 3), *(d.integer(1, 5) for _ in range(rank))])], align_corners=d.pick([None, 0, 1]))


@operator("RoiAlign")
def roi_align(d, op):
    a = d.value(dims=[d.integer(1, 2), d.integer(1, 4), d.integer(4, 12), d.integer(4, 12)])
    count = d.integer(1, 3)
    corners = d.random.uniform(0, 8, [count, 2])
    boxes = d.new(numpy.concatenate([corners, corners + d.random.uniform(0.5, 8, [count, 2])], 1).astype(d[a].dtype))
    batch = d.new(d.random.integers(0, d[a].shape[0], count).astype(I64))
    d.emit(op, [a, boxes, batch], mode=d.pick([None, "avg", "max"]), output_height=d.integer(1, 4), output_width=d.integer(1, 4),
           sampling_ratio=d.pick([None, 0, 1, 2]), spatial_scale=d.pick([None, 1.0, 0.5]),
           coordinate_transformation_mode=d.pick([None, "half_pixel", "output_half_pixel"]))  # fmt: skip


@operator("NonMaxSuppression")
def nms(d, op):
    n, boxes, classes = d.integer(1, 2), d.integer(1, 12), d.integer(1, 3)
    corners = d.random.uniform(0, 1, [n, boxes, 2])
    given = d.new(numpy.concatenate([corners, corners + d.random.uniform(0.1, 0.7, [n, boxes, 2])], 2).astype(F32))
    scores = d.new(d.random.random([n, classes, boxes]).astype(F32))
    d.emit(op, [given, scores, d.add(numpy.asarray([d.integer(1, 5)], I64), True), d.add(numpy.asarray([0.4], F32), True),
                d.add(numpy.asarray([0.3], F32), True)], center_point_box=d.pick([None, 0, 1]))  # fmt: skip


@operator("NonZero")
def non_zero(d, op):
    d.emit(op, [d.value((F32, I32, I64, BOOL), rank=(1, 3))])


# Shapes and constants.
@operator("Reshape")
def reshape(d, op):
    a = d.value(ANY, rank=(0, 5))
    left, dims = d[a].size, []
    while left > 1 and len(dims) < 4:
        dims.append(d.pick([size for size in range(1, left + 1) if left % size == 0]))
        left //= dims[-1]
    dims = dims + [left] if left != 1 or d.chance(0.2) else dims
    if dims and d[a].size and d.chance(0.4):
        dims[d.integer(0, len(dims) - 1)] = -1
    elif dims and d[a].ndim and dims[0] == d[a].shape[0]:
        dims[0] = 0
    d.emit(op, [a, d.known(dims)], allowzero=d.pick([None, None, 0]))


@operator("Flatten")
def flatten(d, op):
    a = d.value(ANY, rank=(1, 5))
    d.emit(op, [a], axis=d.pick([None, d.integer(0, d[a].ndim), -1 if since(d, op) >= 11 else 0]))


@operator("Squeeze")
def squeeze(d, op):
    a = d.value(ANY, rank=(1, 5), fits=lambda array: 1 in array.shape)
    ones = [axis for axis, size in enumerate(d[a].shape) if size == 1]
    chosen = ones[: d.integer(1, len(ones))]
    if since(d, op) >= 11:
        chosen = [axis - d[a].ndim if d.chance(0.3) else axis for axis in chosen]
    inputs, given = split_off(d, chosen, "axes", since(d, op) >= 13) if d.chance(0.8) else ([], {})
    d.emit(op, [a, *inputs], **given)


@operator("Unsqueeze")
def unsqueeze(d, op):
    a = d.value(ANY, rank=(0, 4))
    count = d.integer(1, 2)
    chosen = d.random.permutation(d[a].ndim + count)[:count].tolist()
    if since(d, op) >= 11 and d.chance(0.3):
        chosen = [axis - d[a].ndim - count for axis in chosen]
    inputs, given = split_off(d, chosen, "axes", since(d, op) >= 13)
    d.emit(op, [a, *inputs], **given)


@operator("Identity", "Size")
def plain(d, op):
    d.emit(op, [d.value(ANY)])


@operator("Dropout")
def dropout(d, op):
    given = {"ratio": 0.3} if since(d, op) < 12 else {}
    d.emit(op, [d.value()], d.pick([1, 1, 2]), **given)


@operator("Shape")
def shape(d, op):
    a = d.value(ANY, rank=(1, 5))
    d.emit(op, [a], start=d.pick([None, d.integer(-2, 2)]), end=d.pick([None, d.integer(-1, 3)]))


@operator("Constant")
def constant(d, op):
    given = {"value": onnx.numpy_helper.from_array(d.array(d.pick(d.types(ANY)), d.dims(0, 3)))}
    if since(d, op) >= 12 and d.chance(0.4):
        given = d.pick([{"value_float": 0.5}, {"value_int": 3}, {"value_floats": [1.0, 2.5]}, {"value_ints": [4, 5, 6]}])
    d.emit(op, [], **given)


@operator("ConstantOfShape")
def constant_of_shape(d, op):
    value = onnx.numpy_helper.from_array(numpy.asarray([2]).astype(d.pick(ANY)))
    d.emit(op, [d.known(d.dims(0, 3))], value=d.pick([None, value]))


@operator("Range")
def ranged(d, op):
    kind = d.pick([F32, F64, I32, I64])
    start, step = d.integer(-5, 5), d.pick([1, 2, 3, -1, -2])
    end = start + step * d.integer(0, 7) + d.integer(0, 1)
    d.emit(op, [d.known(value, kind) for value in (start, end, step)])


@operator("SwiGLU")
def swiglu(d, op):
    a = d.value(rank=(1, 4))
    d.emit(op, [a, same_type(d, a, d[a].shape)], alpha=d.pick([None, 0.5, 2.0]))


@operator("Unique")
def unique(d, op):
    a = d.value((F32, I64), rank=(1, 4), fits=lambda array: array.size > 0)
    d.emit(op, [a], d.integer(1, 4), axis=d.pick([None, axis_of(d, d[a].ndim)]), sorted=d.pick([None, 0, 1]))


@operator("BitCast")
def bit_cast(d, op):
    to = {F32: I32, I32: U32, I64: U64, U8: I8, I8: U8}
    a = d.value(list(to)[d.half:])
    d.emit(op, [a], to=int(helper.np_dtype_to_tensor_dtype(numpy.dtype(to[d[a].dtype.type]))))
