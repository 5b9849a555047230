#include "tools/verbs/model_inputs.h"

#include <fmt/format.h>

#include <charconv>
#include <random>

#include "lenslet/error.h"
#include "tools/measuring/draw.h"

namespace lenslet::tool {

namespace {

std::int64_t parse_dim(std::string_view text, const std::string& whole) {
  std::int64_t dim = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), dim);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size() || dim < 0)
    throw Error(ErrorKind::invalid_argument, fmt::format("--shape {}: wanted NAME=AxBxC with whole numbers", whole));
  return dim;
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
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i)
    draw(tensors.emplace_back(model.inputs().at(i).dtype, plan.inputs[i].second), engine);
  return tensors;
}

}  // namespace lenslet::tool
