// Resize and Upsample: nearest, linear or cubic interpolation along each axis.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/convert.h"
#include "ops/core/by_floats.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/needs_value.h"
#include "ops/core/shape_args.h"
#include "ops/resample/resize_integers.h"
#include "ops/resample/resize_passes.h"

namespace lenslet {

namespace {

/// Inputs: X, roi (tf_crop_and_resize), scales, sizes (either of the last two); all except X known before the run. Two
/// inputs are X and scales (Resize-10, Upsample-9). Upsample-7 has its scales as an attribute.
class ResizeOp final : public Op {
 public:
  enum class Aspect : std::uint8_t { stretch, not_larger, not_smaller };
  static constexpr std::string_view aspects[] = {"stretch", "not_larger", "not_smaller"};

  ResizeRule rule;
  double extrapolation = 0;
  BlendedCodes codes;  ///< where lower_quantized made it of what lies between DequantizeLinear and QuantizeLinear

  explicit ResizeOp(const NodeSpec& spec) : type_(spec.name == "Upsample" ? "Upsample" : "Resize") {
    AttributeReader reader(spec);
    const bool upsample = spec.name == "Upsample", oldest = upsample || spec.before(11);
    rule.mode = word<ResizeRule::Mode>(reader, "mode", resize_modes, "nearest");
    rule.coordinates =
        word<ResizeRule::Coordinates>(oldest && !spec.normalised, reader, "coordinate_transformation_mode",
                                      resize_coordinates, oldest ? "asymmetric" : "half_pixel");
    rule.nearest = word<ResizeRule::Nearest>(
        oldest && !spec.normalised, reader, "nearest_mode",
        std::span(resize_nearest).first(oldest || spec.normalised ? std::size(resize_nearest) : onnx_nearest),
        oldest ? "floor_or_ceil" : "round_prefer_floor");
    if (!oldest || spec.normalised) {
      rule.cubic_a = reader.real("cubic_coeff_a", -0.75);
      rule.exclude_outside = reader.flag("exclude_outside", false);
      extrapolation = reader.real("extrapolation_value", 0);
    }
    if (!spec.before(18)) {
      rule.antialias = reader.flag("antialias", false);
      axes_ = reader.integers("axes");
      aspect_ = word<Aspect>(reader, "keep_aspect_ratio_policy", aspects, "stretch");
    }
    if (upsample && (spec.before(9) || spec.normalised)) scales_ = reader.reals("scales");
    if (spec.normalised && reader.has("code_factor")) read_codes(reader);
    reader.finish();
    if (oldest && !spec.normalised && rule.mode == ResizeRule::Mode::cubic)
      throw Error(ErrorKind::invalid_model, "attribute 'mode' is 'cubic' before opset 11");
    if (rule.antialias && rule.mode == ResizeRule::Mode::nearest) rule.antialias = false;  // it has no filter
  }

  std::string_view type() const override { return type_; }
  AttributeList attributes() const override {
    AttributeList list{{"mode", text(resize_modes, rule.mode)},
                       {"coordinate_transformation_mode", text(resize_coordinates, rule.coordinates)},
                       {"nearest_mode", text(resize_nearest, rule.nearest)},
                       {"cubic_coeff_a", rule.cubic_a},
                       {"exclude_outside", std::int64_t{rule.exclude_outside}},
                       {"extrapolation_value", extrapolation},
                       {"antialias", std::int64_t{rule.antialias}},
                       {"keep_aspect_ratio_policy", text(aspects, aspect_)}};
    if (!axes_.empty()) list.emplace_back("axes", axes_);
    if (!scales_.empty()) list.emplace_back("scales", scales_);
    if (codes.factor != 0)
      list.insert(list.end(), {{"code_factor", static_cast<double>(codes.factor)},
                               {"x_zero_point", static_cast<std::int64_t>(codes.zero)},
                               {"y_zero_point", std::int64_t{codes.zero_point}},
                               {"stored_type", std::string(to_string(codes.type))},
                               {"stored_range", std::vector<std::int64_t>{codes.least, codes.most}}});
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "X");
    const std::vector<ResizedAxis> resized = axes(inputs);
    for (int axis = 0; axis < type.shape.rank(); ++axis) {
      const ResizedAxis& a = resized[static_cast<std::size_t>(axis)];
      if (a.in == 0 && a.out > 0)
        throw Error(ErrorKind::invalid_model, fmt::format("axis {} has no elements to make {} of", axis, a.out));
      type.shape = type.shape.with(axis, a.out);
    }
    if (codes.factor != 0) type.dtype = codes.type;
    return {type};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [&, resized = axes(inputs)](int axis) {
      return !resized[static_cast<std::size_t>(axis)].changes;
    });
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    return codes.factor == 0 &&
           std::ranges::none_of(axes(inputs), [](const ResizedAxis& axis) { return axis.changes; });
  }

  /// One per axis of X.
  std::vector<ResizedAxis> axes(std::span<const InputInfo> inputs) const {
    const Shape& x = required_input(inputs, 0, "X").shape;
    std::vector<ResizedAxis> all;
    for (const std::int64_t dim : x.dims()) all.push_back({.in = dim, .out = dim});
    std::vector<int> named;
    for (const std::int64_t axis : axes_) named.push_back(resolve_axis(axis, x.rank()));
    if (named.empty())
      for (int axis = 0; axis < x.rank(); ++axis) named.push_back(axis);
    axis_mask(axes_, x.rank());  // refuses one named twice
    const auto of = [&](std::size_t i) -> ResizedAxis& { return all[static_cast<std::size_t>(named[i])]; };
    const auto require_each = [&](std::string_view name, std::size_t count, std::size_t times = 1) {
      if (count != times * named.size())
        throw Error(ErrorKind::invalid_model, fmt::format("{} has {} elements for {} axes", name, count, named.size()));
    };

    const bool oldest = inputs.size() == 2;
    std::vector<float> scales(scales_.begin(), scales_.end());
    if (scales.empty()) scales = floats(inputs, oldest ? 1 : 2, "scales");
    const auto sizes = constant_axis_ints(inputs, oldest ? 2 : 3, "sizes");
    if (sizes && sizes->size > 0) {
      if (!scales.empty()) throw Error(ErrorKind::invalid_model, "has both scales and sizes");
      require_each("sizes", static_cast<std::size_t>(sizes->size));
      for (std::size_t i = 0; i < named.size(); ++i) resize_to(of(i), (*sizes)[static_cast<int>(i)]);
      if (aspect_ != Aspect::stretch) keep_aspect(named, all);
    } else {
      require_each("scales", scales.size());
      for (std::size_t i = 0; i < named.size(); ++i) scale_by(of(i), scales[i]);
    }
    if (rule.coordinates == ResizeRule::Coordinates::tf_crop_and_resize) {
      const std::vector<float> roi = floats(inputs, 1, "roi");
      require_each("roi", roi.size(), 2);
      for (std::size_t i = 0; i < named.size(); ++i) {
        of(i).begin = static_cast<double>(roi[i]);
        of(i).end = static_cast<double>(roi[i + named.size()]);
        if (!std::isfinite(roi[i]) || !std::isfinite(roi[i + named.size()]))
          throw Error(ErrorKind::invalid_model, "roi is not finite");
      }
    }
    for (ResizedAxis& axis : all)
      axis.changes = axis.in != axis.out || axis.scale != 1 || axis.begin != 0 || axis.end != 1;
    return all;
  }

 private:
  void read_codes(AttributeReader& reader) {
    codes.factor = static_cast<float>(reader.real("code_factor", 0));
    codes.zero = static_cast<float>(reader.integer("x_zero_point", 0));
    codes.zero_point = static_cast<std::int32_t>(reader.integer("y_zero_point", 0));
    codes.type = reader.text("stored_type", to_string(DType::u8)) == to_string(DType::i8) ? DType::i8 : DType::u8;
    const std::vector<std::int64_t> range = reader.integers("stored_range");
    if (range.size() != 2 || !std::isfinite(codes.factor))
      throw Error(ErrorKind::invalid_model, "attributes of codes make no sense");
    codes.least = static_cast<std::int32_t>(range[0]);
    codes.most = static_cast<std::int32_t>(range[1]);
  }

  template <typename Enum>
  static Enum word(AttributeReader& reader, std::string_view name, std::span<const std::string_view> words,
                   std::string_view fallback) {
    const std::string text = reader.text(name, fallback);
    const auto found = std::ranges::find(words, std::string_view(text));
    if (found == words.end())
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}' is '{}' (supported: {})", name, text, fmt::join(words, ", ")));
    return static_cast<Enum>(found - words.begin());
  }
  /// `fixed`: the value before the attribute existed.
  template <typename Enum>
  static Enum word(bool fixed, AttributeReader& reader, std::string_view name, std::span<const std::string_view> words,
                   std::string_view fallback) {
    if (!fixed) return word<Enum>(reader, name, words, fallback);
    return static_cast<Enum>(std::ranges::find(words, fallback) - words.begin());
  }
  template <typename Enum, std::size_t n>
  static std::string text(const std::string_view (&words)[n], Enum value) {
    return std::string(words[static_cast<std::size_t>(value)]);
  }

  /// A constant list of floats; empty when it is left out or empty.
  static std::vector<float> floats(std::span<const InputInfo> inputs, std::size_t i, std::string_view name) {
    if (!present(inputs, i) || inputs[i].type.shape.elems() == 0) return {};
    require_dtype(fmt::format("input {}", name), inputs[i].type.dtype, {DType::f32});
    require_rank(fmt::format("input {}", name), inputs[i].type.shape, 1, 1);
    const std::span<const float> values = known_value(inputs, i, name).values<float>();
    return {values.begin(), values.end()};
  }

  static void resize_to(ResizedAxis& axis, std::int64_t size) {
    if (size < 0) throw Error(ErrorKind::invalid_model, fmt::format("sizes has the element {}", size));
    axis.out = size;
    if (axis.in > 0 && size > 0) axis.scale = static_cast<double>(size) / static_cast<double>(axis.in);
  }
  static void scale_by(ResizedAxis& axis, float scale) {
    if (!(scale > 0) || !std::isfinite(scale))
      throw Error(ErrorKind::invalid_model, fmt::format("scales has the element {}", scale));
    const float size = std::floor(static_cast<float>(axis.in) * scale);  // ONNX multiplies in float32
    if (size > 0x1p40F) throw Error(ErrorKind::limit, fmt::format("{} elements scaled by {}", axis.in, scale));
    axis.out = static_cast<std::int64_t>(size);
    axis.scale = static_cast<double>(scale);
  }
  /// Gives the named axes one scale: their least or greatest.
  void keep_aspect(const std::vector<int>& named, std::vector<ResizedAxis>& all) const {
    double scale = all[static_cast<std::size_t>(named.front())].scale;
    for (const int axis : named) {
      const double own = all[static_cast<std::size_t>(axis)].scale;
      scale = aspect_ == Aspect::not_larger ? std::min(scale, own) : std::max(scale, own);
    }
    for (const int i : named) {
      ResizedAxis& axis = all[static_cast<std::size_t>(i)];
      axis.scale = scale;
      axis.out = static_cast<std::int64_t>(std::floor(scale * static_cast<double>(axis.in) + 0.5));
    }
  }

  std::string_view type_;
  std::vector<std::int64_t> axes_;  ///< empty: all
  std::vector<double> scales_;      ///< Upsample-7
  Aspect aspect_ = Aspect::stretch;
};

/// Empty when there is nothing to compute.
std::vector<ResizePass> passes_of(const Problem& problem, const Candidate& candidate) {
  if (problem.output_shape().elems() == 0) return {};
  const auto& op = problem.as<ResizeOp>();
  return resize_passes(op.rule, op.axes(problem.inputs()), candidate.inputs[0]);
}

/// Computes row j of `pass` from the lines of `x` [in, inner].
void blend(const ResizePass& pass, std::int64_t j, const float* x, float extrapolation, float* y) {
  const std::int64_t inner = pass.inner, *const index = pass.taps.index.data();
  const float* const weight = pass.taps.weight.data();
  std::int64_t t = pass.taps.first[static_cast<std::size_t>(j)];
  const std::int64_t end = pass.taps.first[static_cast<std::size_t>(j) + 1];
  if (t == end) {
    std::fill_n(y, inner, extrapolation);
    return;
  }
  if (end - t == 2) {  // nearly all there is, in one go
    const float *const a = x + index[t] * inner, *const b = x + index[t + 1] * inner;
    const float of_a = weight[t], of_b = weight[t + 1];
    for (std::int64_t i = 0; i < inner; ++i) y[i] = of_a * a[i] + of_b * b[i];
    return;
  }
  const float* from = x + index[t] * inner;
  const float first = weight[t];
  for (std::int64_t i = 0; i < inner; ++i) y[i] = first * from[i];
  for (++t; t < end; ++t) {
    from = x + index[t] * inner;
    const float w = weight[t];
    for (std::int64_t i = 0; i < inner; ++i) y[i] += w * from[i];
  }
}

/// The same of bfloat16 lines, or to one: blended in float32, rounded once.
inline const float* as_floats(const float* x, std::int64_t, float*) { return x; }
inline const float* as_floats(const BFloat16* x, std::int64_t n, float* to) {
  widen(x, to, n);
  return to;
}
inline void put(const float* x, std::int64_t n, float* y) { std::copy_n(x, n, y); }
inline void put(const float* x, std::int64_t n, BFloat16* y) { narrow(x, y, n); }
template <typename X, typename Y>
void blend(const ResizePass& pass, std::int64_t j, const X* x, float extrapolation, Y* y) {
  alignas(64) FloatPiece sums, line;
  const auto row = static_cast<std::size_t>(j);
  for (std::int64_t i = 0; i < pass.inner; i += floats_at_once) {
    const std::int64_t count = std::min(floats_at_once, pass.inner - i);
    std::int64_t t = pass.taps.first[row];
    const std::int64_t end = pass.taps.first[row + 1];
    std::fill_n(sums.data(), count, t == end ? extrapolation : 0.0F);
    for (; t < end; ++t) {
      const auto tap = static_cast<std::size_t>(t);
      const float* const from = as_floats(x + pass.taps.index[tap] * pass.inner + i, count, line.data());
      const float weight = pass.taps.weight[tap];
      for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) sums[k] += weight * from[k];
    }
    put(sums.data(), count, y + i);
  }
}

/// The same for lines of one element.
template <typename X, typename Y>
void blend_elements(const ResizePass& pass, const X* x, float extrapolation, Y* y) {
  const std::int64_t* const index = pass.taps.index.data();
  const float* const weight = pass.taps.weight.data();
  for (std::int64_t j = 0; j < pass.out; ++j) {
    std::int64_t t = pass.taps.first[static_cast<std::size_t>(j)];
    const std::int64_t end = pass.taps.first[static_cast<std::size_t>(j) + 1];
    float sum = t == end ? extrapolation : weight[t] * convert<float>(x[index[t]]);
    for (++t; t < end; ++t) sum += weight[t] * convert<float>(x[index[t]]);
    y[j] = convert<Y>(sum);
  }
}

template <typename T>
void pick(const ResizePass& pass, std::int64_t j, const T* x, T extrapolation, T* y) {
  const std::int64_t t = pass.taps.first[static_cast<std::size_t>(j)];
  if (t == pass.taps.first[static_cast<std::size_t>(j) + 1])
    std::fill_n(y, pass.inner, extrapolation);
  else
    std::copy_n(x + pass.taps.index[static_cast<std::size_t>(t)] * pass.inner, pass.inner, y);
}

/// Sources of a line's elements if each copies one: `source`, or -1 for extrapolation.
struct Picks {
  std::vector<std::int64_t> source;
  std::int64_t repeats = 0;  ///< k > 1: element j is that at j / k; 0: no such rule

  explicit Picks(const ResizePass& pass) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(pass.out); ++j)
      source.push_back(pass.taps.first[j] == pass.taps.first[j + 1]
                           ? -1
                           : pass.taps.index[static_cast<std::size_t>(pass.taps.first[j])]);
    const std::int64_t k = pass.in > 0 && pass.out % pass.in == 0 ? pass.out / pass.in : 0;
    std::int64_t j = 0;
    if (k > 1 && std::ranges::all_of(source, [&](std::int64_t from) { return from == j++ / k; })) repeats = k;
  }

  template <typename T>
  void run(const T* x, T beyond, T* y) const {
    const auto out = static_cast<std::int64_t>(source.size());
    if (repeats == 2) {
      for (std::int64_t i = 0; i < out / 2; ++i) y[2 * i] = y[2 * i + 1] = x[i];
    } else if (repeats > 2) {
      for (std::int64_t i = 0; i < out / repeats; ++i) std::fill_n(y + i * repeats, repeats, x[i]);
    } else {
      for (std::int64_t j = 0; j < out; ++j) {
        const std::int64_t from = source[static_cast<std::size_t>(j)];
        y[j] = from < 0 ? beyond : x[from];
      }
    }
  }
};

class BoundResize final : public BoundKernel {
 public:
  explicit BoundResize(const Binding& binding)
      : nearest_(binding.op<ResizeOp>().rule.mode == ResizeRule::Mode::nearest),
        brain_(!nearest_ && binding.problem.inputs()[0].type.dtype == DType::bf16),
        item_(brain_ ? sizeof(float) : dtype_bytes(binding.problem.inputs()[0].type.dtype)),
        extrapolation_(static_cast<float>(binding.op<ResizeOp>().extrapolation)),
        passes_(passes_of(binding.problem, binding.candidate)) {
    if (nearest_)
      for (const ResizePass& pass : passes_) picks_.emplace_back(pass);
    for (std::size_t i = 0; i + 1 < passes_.size(); ++i)
      between_ = std::max(between_, (static_cast<std::size_t>(passes_[i].elems()) * item_ + 63) / 64 * 64);
  }
  std::size_t workspace_bytes() const override {
    return passes_.size() < 2 ? 0 : passes_.size() == 2 ? between_ : 2 * between_;
  }

  void run(const KernelRun& run) const override {
    const auto* from = run.in<std::byte>(0);
    if (passes_.empty()) std::copy_n(from, run.outputs[0].bytes(), run.out<std::byte>());
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      std::byte* const to =
          i + 1 == passes_.size() ? run.out<std::byte>() : run.workspace.data() + (i % 2 == 0 ? 0 : between_);
      if (nearest_)
        dispatch_bytes(item_, [&]<typename T>(std::type_identity<T>) {
          pick_pass(passes_[i], picks_[i], reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), *run.pool);
        });
      else
        blend_between(passes_[i], brain_ && i == 0, from, brain_ && i + 1 == passes_.size(), to, *run.pool);
      from = to;
    }
  }

 private:
  template <typename T>
  void pick_pass(const ResizePass& pass, const Picks& picks, const T* x, T* y, ThreadPool& pool) const {
    T beyond = 0;  // refused for types but float32
    if constexpr (sizeof(T) == sizeof(float)) beyond = std::bit_cast<T>(extrapolation_);
    if (pass.inner == 1)
      return pool.parallel_for(pass.outer, grain(pass.out), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t line = begin; line < end; ++line) picks.run(x + line * pass.in, beyond, y + line * pass.out);
      });
    pool.parallel_for(pass.outer * pass.out, grain(pass.inner), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row)
        pick(pass, row % pass.out, x + row / pass.out * pass.in * pass.inner, beyond, y + row * pass.inner);
    });
  }
  /// The first pass reads, the last one writes what is stored; between them are floats.
  void blend_between(const ResizePass& pass, bool brain_x, const void* x, bool brain_y, void* y,
                     ThreadPool& pool) const {
    const auto with_y = [&](const auto* from) {
      if (brain_y) return blend_pass(pass, from, static_cast<BFloat16*>(y), pool);
      blend_pass(pass, from, static_cast<float*>(y), pool);
    };
    if (brain_x) return with_y(static_cast<const BFloat16*>(x));
    with_y(static_cast<const float*>(x));
  }
  template <typename X, typename Y>
  void blend_pass(const ResizePass& pass, const X* x, Y* y, ThreadPool& pool) const {
    if (pass.inner == 1)
      return pool.parallel_for(pass.outer, grain(pass.out), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t line = begin; line < end; ++line)
          blend_elements(pass, x + line * pass.in, extrapolation_, y + line * pass.out);
      });
    pool.parallel_for(pass.outer * pass.out, grain(pass.inner), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row)
        blend(pass, row % pass.out, x + row / pass.out * pass.in * pass.inner, extrapolation_, y + row * pass.inner);
    });
  }
  static std::int64_t grain(std::int64_t elems) {
    return std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, elems));
  }

  bool nearest_;
  bool brain_;        ///< blends bfloat16
  std::size_t item_;  ///< bytes of an element between passes
  float extrapolation_;
  std::vector<ResizePass> passes_;
  std::vector<Picks> picks_;  ///< of nearest, one a pass
  std::size_t between_ = 0;   ///< bytes of the largest result that is not the last
};

/// True for 8-bit integers with linear blending, computed in float32.
bool blends_integers(const Problem& problem) {
  const ResizeRule& rule = problem.as<ResizeOp>().rule;
  return dtypes<Types<std::int8_t, std::uint8_t>>.contains(problem.inputs()[0].type.dtype) &&
         rule.mode == ResizeRule::Mode::linear && !rule.antialias &&
         rule.coordinates != ResizeRule::Coordinates::tf_crop_and_resize;
}

IntegerResize integers_of(const Problem& problem, const Candidate& candidate) {
  if (problem.output_shape().elems() == 0) return {{}, {}, formats::nchw};
  const auto& op = problem.as<ResizeOp>();
  return {op.rule, op.axes(problem.inputs()), candidate.inputs[0]};
}

/// A sum rounds once per tap, and so do its weights; with cubic filters, which subtract, terms may exceed the sum.
double tolerance(const Problem& problem) {
  const auto& op = problem.as<ResizeOp>();
  if (op.rule.mode == ResizeRule::Mode::nearest || blends_integers(problem)) return 0;
  double roundings = 0;
  for (const ResizedAxis& axis : op.axes(problem.inputs()))
    if (axis.changes && axis.in > 0) roundings += static_cast<double>(AxisTaps(op.rule, axis).most() + 1);
  return 8 * 0x1p-24 * roundings;
}

std::optional<std::string> refuse(const Problem& problem) {
  const auto& op = problem.as<ResizeOp>();
  const DType dtype = problem.inputs()[0].type.dtype;
  const bool blends = op.rule.mode != ResizeRule::Mode::nearest;
  const bool invents = op.rule.coordinates == ResizeRule::Coordinates::tf_crop_and_resize;
  const bool on_cpu = dtype == DType::bf16 && blends && !op.rule.antialias;
  if (op.codes.factor != 0 &&
      (!blends_integers(problem) || std::ranges::none_of(op.axes(problem.inputs()), &ResizedAxis::changes)))
    return "codes of what is not blended";
  if (dtype == DType::f32 || on_cpu || !(blends || invents) || blends_integers(problem)) return std::nullopt;
  return fmt::format("mode {}{} with {} of {} (supported: float32)",
                     resize_modes[static_cast<std::size_t>(op.rule.mode)], op.rule.antialias ? ", antialias," : "",
                     resize_coordinates[static_cast<std::size_t>(op.rule.coordinates)], to_string(dtype));
}

/// Blended halves are rounded when stored: once if a single launch computes everything.
std::optional<std::string> refuse_halves(const Problem& problem) {
  for (const Format& format : nchw_or_nhwc) {
    if (problem.shape(0).rank() != 4 && format != formats::nchw) continue;
    Candidate candidate;
    candidate.inputs = {format};
    if (resize_launches(passes_of(problem, candidate)) > 1)
      return fmt::format("{} would be rounded between the axes", to_string(problem.inputs()[0].type.dtype));
  }
  return std::nullopt;
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  if (problem.as<ResizeOp>().codes.factor != 0) return "codes (supported: numbers)";
  const bool halves = dtypes<HalfTypes>.contains(problem.inputs()[0].type.dtype);
  const bool blends = problem.as<ResizeOp>().rule.mode != ResizeRule::Mode::nearest;
  if (auto why = !halves ? refuse(problem) : blends ? refuse_halves(problem) : std::nullopt) return why;
  for (const Shape& shape : {problem.shape(0), problem.output_shape()})
    for (const std::int64_t dim : shape.dims())
      if (dim > std::numeric_limits<std::int32_t>::max()) return fmt::format("an axis of {} elements", dim);
  return std::nullopt;
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  if (blends_integers(binding.problem))
    return bind_resize_integers(integers_of(binding.problem, binding.candidate), binding.op<ResizeOp>().codes, binding);
  return bind<BoundResize>(binding);
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if (blends_integers(binding.problem))
    return bind_resize_integers_cuda(integers_of(binding.problem, binding.candidate), binding);
  return bind_resize_cuda(passes_of(binding.problem, binding.candidate), binding,
                          static_cast<float>(binding.op<ResizeOp>().extrapolation));
}

std::optional<BlobSpec> table_spec(const Problem& problem, const Candidate& candidate) {
  const std::size_t bytes = blends_integers(problem) ? integer_taps_bytes(integers_of(problem, candidate))
                                                     : resize_table_bytes(passes_of(problem, candidate));
  if (bytes == 0) return std::nullopt;
  BlobSpec spec{.key = fmt::format("{} {} {}", to_string(candidate.inputs[0]), to_string(problem.op().attributes()),
                                   blends_integers(problem) ? "integers" : "floats"),
                .bytes = bytes};
  for (const ResizedAxis& a : problem.as<ResizeOp>().axes(problem.inputs()))
    spec.key += fmt::format(" {}:{}:{:a}:{:a}:{:a}", a.in, a.out, a.scale, a.begin, a.end);
  return spec;
}

void fill_table(const Problem& problem, const Candidate& candidate, std::span<std::byte> blob) {
  if (blends_integers(problem)) return fill_integer_taps(integers_of(problem, candidate), blob);
  fill_resize_table(passes_of(problem, candidate), blob);
}

/// Integers are summed in the order of X's axes.
std::span<const Format> formats_of(const Problem& problem) {
  const bool channels_change = problem.shape(0).rank() == 4 && problem.as<ResizeOp>().axes(problem.inputs())[1].changes;
  return blends_integers(problem) && channels_change ? std::span<const Format>(nchw_only) : nchw_or_nhwc;
}

constexpr SimpleKernel kernels[] = {
    {.formats_for = formats_of, .tolerance_for = tolerance, .reads = input_bit(0), .refuse = refuse, .bind = bind_cpu},
    {.device = DeviceKind::cuda,
     .formats_for = formats_of,
     .tolerance_for = tolerance,
     .reads = input_bit(0),
     .refuse = refuse_cuda,
     .bind = bind_cuda,
     .blob = table_spec,
     .prepare = fill_table}};

}  // namespace

OpParts resize() { return {make_from<ResizeOp>, kernels}; }

}  // namespace lenslet
