#include "tools/verbs/model_inputs.h"

#include <fmt/format.h>

#include <charconv>
#include <random>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

std::int64_t parse_dim(std::string_view text, const std::string& whole) {
  std::int64_t dim = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), dim);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size() || dim < 0)
    throw Error(ErrorKind::invalid_argument, fmt::format("--shape {}: wanted NAME=AxBxC with whole numbers", whole));
  return dim;
}

template <typename T, typename Draw>
void fill(Tensor& tensor, Draw draw) {
  for (T& value : tensor.values<T>()) value = static_cast<T>(draw());
}

}  // namespace

void add_shape_option(CLI::App& verb, std::vector<std::string>& texts) {
  verb.add_option("--shape", texts, "Shape of an input with free dimensions, NAME=1x3x48x192; repeatable")
      ->allow_extra_args(false);
}

std::vector<std::pair<std::string, Shape>> parse_shapes(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const std::string& text : texts) {
    // Names may hold '=', sizes cannot.
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorKind::invalid_argument, fmt::format("--shape {}: wanted NAME=AxBxC", text));
    std::vector<std::int64_t> dims;
    std::string_view rest = std::string_view(text).substr(equals + 1);
    while (true) {
      const std::size_t x = rest.find('x');
      dims.push_back(parse_dim(rest.substr(0, x), text));
      if (x == std::string_view::npos) break;
      rest.remove_prefix(x + 1);
    }
    shapes.emplace_back(text.substr(0, equals), Shape(dims));
  }
  return shapes;
}

std::vector<Tensor> random_inputs(const Model& model, const PlanInfo& plan, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  // Not std::uniform_real_distribution: its values differ between standard libraries.
  const auto unit = [&engine] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const auto& [name, shape] = plan.inputs[i];
    Tensor tensor(model.inputs().at(i).dtype, shape);
    switch (tensor.dtype()) {
      case DType::f32:
        fill<float>(tensor, [&] { return 2 * unit() - 1; });
        break;
      case DType::f64:
        fill<double>(tensor, [&] { return 2 * unit() - 1; });
        break;
      case DType::u8:
        fill<std::uint8_t>(tensor, [&] { return engine() >> 56; });
        break;
      case DType::i32:
        fill<std::int32_t>(tensor, [&] { return engine() >> 63; });
        break;
      case DType::i64:
        fill<std::int64_t>(tensor, [&] { return engine() >> 63; });
        break;
      case DType::boolean:
        fill<bool>(tensor, [&] { return engine() >> 63 != 0; });
        break;
      case DType::f16: {
        // Halves of magnitude 0.5 to 1: sign and mantissa drawn, exponent fixed.
        auto* bits = static_cast<std::uint16_t*>(tensor.data());
        for (std::int64_t e = 0; e < tensor.elems(); ++e)
          bits[e] = static_cast<std::uint16_t>(0x3800U | (engine() >> 54U) | ((engine() >> 63U) << 15U));
        break;
      }
      default:
        throw Error(ErrorKind::unsupported,
                    fmt::format("input '{}': no random {} values; give a file", name, to_string(tensor.dtype())));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace lenslet::tool
