#include "tools/quantize/qdq.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

template <typename T>
std::string_view raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// The axis of a product's weights along which output channels lie.
std::size_t channel_axis(const EditedNode& node) {
  if (node.op == "Conv") return 0;
  if (node.op == "Gemm" && node.integer("transB", 0) != 0) return 0;
  return 1;
}

class Writer {
 public:
  Writer(const OnnxFile& file, const QuantizePlan& plan, const Quantizers& how, const Wanted* wanted)
      : from_(file), file_(file), plan_(plan), how_(how), wanted_(wanted) {}

  OnnxFile write() {
    for (const EditedPort& input : from_.inputs)
      if (is_quantized(input.name)) add_pair(input.name, input.name, file_.new_name(input.name + "_dequantized"));
    for (std::size_t i = 0; i < from_.nodes.size(); ++i) {
      EditedNode node = from_.nodes[i];
      const bool selected = plan_.nodes.contains(i);
      if (selected) quantize_constants(node);
      const auto data = data_inputs(node);
      for (std::size_t at = 0; at < node.inputs.size(); ++at) {
        const auto read = read_as_.find(node.inputs[at]);
        if (read != read_as_.end() && (plan_.made.contains(read->first) || (selected && at < data.size())))
          node.inputs[at] = read->second;
      }
      std::vector<std::pair<std::string, std::string>> stored;  // the float value, and its name for readers
      for (std::string& output : node.outputs)
        if (is_quantized(output)) {
          const std::string name = output;
          if (from_.is_output(name) && plan_.made.contains(name)) output = file_.new_name(name + "_float");
          stored.emplace_back(output, name);
        }
      nodes_.push_back(std::move(node));
      for (const auto& [output, name] : stored)
        add_pair(output, name, output == name ? file_.new_name(name + "_dequantized") : name);
    }
    file_.nodes = std::move(nodes_);
    file_.remove_unread();
    return std::move(file_);
  }

 private:
  bool is_quantized(const std::string& value) const {
    return plan_.group.contains(value) && (wanted_ == nullptr || wanted_->values.contains(value));
  }

  Quantization quantization(const std::string& value) const {
    return quantization_of(how_.ranges.at(plan_.group.at(value)), how_.is_signed);
  }

  /// A scale and a zero point, or a list of each.
  template <typename T>
  std::vector<std::string> add_parameters(const std::string& base, OnnxType type, const std::vector<float>& scales,
                                          const std::vector<T>& zeros, bool per_channel) {
    std::vector<std::int64_t> dims;
    if (per_channel) dims.push_back(static_cast<std::int64_t>(scales.size()));
    std::vector<std::string> names{file_.new_name(base + "_scale"), file_.new_name(base + "_zero_point")};
    file_.add(make_tensor(names[0], dims, scales));
    file_.add(make_tensor(names[1], type, dims, raw(zeros)));
    return names;
  }

  void add_node(std::string op, const std::string& input, const std::vector<std::string>& parameters,
                const std::string& output, std::optional<std::size_t> axis = std::nullopt) {
    EditedNode node{output + "_" + op, std::move(op), {}, {input, parameters[0], parameters[1]}, {output}, {}, {}};
    if (axis) node.set_attribute("axis", static_cast<std::int64_t>(*axis));
    nodes_.push_back(std::move(node));
  }

  /// `value` in the graph as `stored`; its readers will read `dequantized`.
  void add_pair(const std::string& stored, const std::string& value, const std::string& dequantized) {
    const std::string& group = plan_.group.at(value);
    auto& parameters = parameters_[group];
    if (parameters.empty()) {
      const Quantization q = quantization(value);
      parameters = add_parameters(group, how_.is_signed ? OnnxType::i8 : OnnxType::u8, {q.scale},
                                  std::vector{static_cast<std::int8_t>(q.zero_point)}, false);
    }
    const std::string codes = file_.new_name(value + "_quantized");
    add_node("QuantizeLinear", stored, parameters, codes);
    add_node("DequantizeLinear", codes, parameters, dequantized);
    read_as_[value] = dequantized;
  }

  void quantize_constants(EditedNode& node) {
    if (wanted_ != nullptr && !wanted_->weights.contains(node.label())) return;
    if (node.op == "Add" || node.op == "Mul") {
      for (std::string& input : node.inputs)
        if (const auto operand = finite(input, node)) input = add_operand(input, *operand);
    } else if (has_known_weights(from_, node)) {
      quantize_weights(node);
    }
  }

  std::optional<FloatTensor> finite(const std::string& name, const EditedNode& node) const {
    auto tensor = from_.constant(name);
    if (tensor && !std::ranges::all_of(tensor->values, [](float value) { return std::isfinite(value); }))
      throw Error(ErrorKind::invalid_argument, fmt::format("{} has a value that is infinite or NaN", name),
                  fmt::format("node {}", node.label()));
    return tensor;
  }

  std::string add_operand(const std::string& name, const FloatTensor& operand) {
    Range range;
    for (const float value : operand.values) {
      range.low = std::min(range.low, double{value});
      range.high = std::max(range.high, double{value});
    }
    const Quantization q = quantization_of(range, how_.is_signed);
    const float least = how_.is_signed ? -128 : 0;
    std::vector<std::int8_t> codes;  // as bits
    for (const float value : operand.values)
      codes.push_back(static_cast<std::int8_t>(static_cast<std::int32_t>(
          std::clamp(std::nearbyint(value / q.scale) + static_cast<float>(q.zero_point), least, least + 255))));
    const OnnxType type = how_.is_signed ? OnnxType::i8 : OnnxType::u8;
    const auto parameters =
        add_parameters(name, type, {q.scale}, std::vector{static_cast<std::int8_t>(q.zero_point)}, false);
    const std::string stored = file_.new_name(name + "_quantized"), read = file_.new_name(name + "_dequantized");
    file_.add(make_tensor(stored, type, operand.dims, raw(codes)));
    add_node("DequantizeLinear", stored, parameters, read);
    return read;
  }

  void quantize_weights(EditedNode& node) {
    const FloatTensor weights = *finite(node.inputs[1], node);
    const std::size_t axis = channel_axis(node), channels = static_cast<std::size_t>(weights.dims[axis]);
    std::size_t inner = 1;
    for (std::size_t i = axis + 1; i < weights.dims.size(); ++i) inner *= static_cast<std::size_t>(weights.dims[i]);
    const std::size_t groups =
        node.op == "ConvTranspose" ? static_cast<std::size_t>(node.integer("group", 1)) : std::size_t{1};
    std::vector<float> bias;
    if (node.has_input(2)) bias = finite(node.inputs[2], node)->values;
    const bool integer_bias = is_quantized(node.inputs[0]) && bias.size() == channels * groups;
    const double x_scale = is_quantized(node.inputs[0]) ? double{quantization(node.inputs[0]).scale} : 1;

    std::vector<float> scales(channels);
    for (std::size_t i = 0; i < weights.values.size(); ++i) {
      float& most = scales[i / inner % channels];
      most = std::max(most, std::fabs(weights.values[i]));
    }
    constexpr double most_bias = 1 << 30;  // of the 32 bits
    for (std::size_t k = 0; k < channels; ++k) {
      double scale = double{scales[k]} / 127;
      if (integer_bias)
        for (std::size_t g = 0; g < groups; ++g)
          scale = std::max(scale, std::fabs(double{bias[g * channels + k]}) / (x_scale * most_bias));
      scales[k] = scale >= double{std::numeric_limits<float>::min()} ? static_cast<float>(scale) : 1.0f;
    }
    std::vector<std::int8_t> codes(weights.values.size());
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::int8_t>(
          std::clamp(std::nearbyint(weights.values[i] / scales[i / inner % channels]), -127.0f, 127.0f));
    if (how_.means != nullptr) correct_bias(node, weights, codes, scales, bias);

    const std::string base = node.inputs[1], stored = file_.new_name(base + "_quantized");
    file_.add(make_tensor(stored, OnnxType::i8, weights.dims, raw(codes)));
    const auto parameters = add_parameters(base, OnnxType::i8, scales, std::vector<std::int8_t>(channels), true);
    node.inputs[1] = file_.new_name(base + "_dequantized");
    add_node("DequantizeLinear", stored, parameters, node.inputs[1], axis);
    if (integer_bias) {
      quantize_bias(node, bias, scales, x_scale);
    } else if (how_.means != nullptr && node.has_input(2)) {
      const std::vector<std::int64_t> dims = from_.constant(node.inputs[2])->dims;
      node.inputs[2] = file_.new_name(node.inputs[2] + "_corrected");
      file_.add(make_tensor(node.inputs[2], dims, bias));
    }
  }

  void quantize_bias(EditedNode& node, const std::vector<float>& bias, const std::vector<float>& w_scales,
                     double x_scale) {
    std::vector<float> scales(bias.size());
    std::vector<std::int32_t> codes(bias.size());
    for (std::size_t k = 0; k < bias.size(); ++k) {
      scales[k] = static_cast<float>(x_scale) * w_scales[k % w_scales.size()];
      if (!(scales[k] > 0)) scales[k] = std::numeric_limits<float>::min();  // the product underflowed
      codes[k] = static_cast<std::int32_t>(
          std::clamp(std::nearbyint(double{bias[k]} / double{scales[k]}), -2147483648.0, 2147483647.0));
    }
    const std::string base = node.inputs[2], stored = file_.new_name(base + "_quantized");
    file_.add(make_tensor(stored, OnnxType::i32, {static_cast<std::int64_t>(bias.size())}, raw(codes)));
    const auto parameters = add_parameters(base, OnnxType::i32, scales, std::vector<std::int32_t>(bias.size()), true);
    node.inputs[2] = file_.new_name(base + "_dequantized");
    add_node("DequantizeLinear", stored, parameters, node.inputs[2], 0);
  }

  /// Subtracts the mean of what the rounded weights add to each channel of a convolution (padding is left out).
  void correct_bias(const EditedNode& node, const FloatTensor& weights, const std::vector<std::int8_t>& codes,
                    const std::vector<float>& scales, std::vector<float>& bias) const {
    const auto means = how_.means->find(node.inputs[0]);
    if (node.op != "Conv" || means == how_.means->end() || bias.size() != scales.size()) return;
    const std::size_t terms = static_cast<std::size_t>(weights.dims[1]);
    const auto groups = static_cast<std::size_t>(std::max<std::int64_t>(node.integer("group", 1), 1));
    if (means->second.size() != groups * terms) return;
    const std::size_t taps = codes.size() / scales.size() / terms;
    const std::size_t per_group = scales.size() / groups;
    for (std::size_t k = 0; k < scales.size(); ++k) {
      double shift = 0;
      for (std::size_t c = 0; c < terms; ++c)
        for (std::size_t t = 0; t < taps; ++t) {
          const std::size_t i = (k * terms + c) * taps + t;
          shift +=
              (double{scales[k]} * codes[i] - double{weights.values[i]}) * means->second.at(k / per_group * terms + c);
        }
      bias[k] = static_cast<float>(double{bias[k]} - shift);
    }
  }

  const OnnxFile& from_;
  OnnxFile file_;
  const QuantizePlan& plan_;
  const Quantizers& how_;
  const Wanted* wanted_;
  std::vector<EditedNode> nodes_;
  std::map<std::string, std::string> read_as_;
  std::map<std::string, std::vector<std::string>> parameters_;  // names, by group
};

}  // namespace

OnnxFile with_qdq(const OnnxFile& file, const QuantizePlan& plan, const Quantizers& how, const Wanted* wanted) {
  return Writer(file, plan, how, wanted).write();
}

}  // namespace lenslet::tool
