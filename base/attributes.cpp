#include "lenslet/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/boundary.h"

namespace lenslet {

namespace {

constexpr std::size_t longest_list = 8;

template <typename T>
std::string list(const std::vector<T>& values) {
  const auto shown = static_cast<std::ptrdiff_t>(std::min(values.size(), longest_list));
  std::string text = fmt::format("[{}", fmt::join(values.begin(), values.begin() + shown, ","));
  if (values.size() > longest_list) text += fmt::format(",... {} in all", values.size());
  return text + "]";
}

struct Printer {
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{:g}", value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<std::int64_t>& values) const { return list(values); }
  std::string operator()(const std::vector<double>& values) const { return list(values); }
  std::string operator()(const std::vector<std::string>& values) const { return list(values); }
  std::string operator()(const Tensor& tensor) const {
    return fmt::format("<{} {}>", to_string(tensor.dtype()), tensor.shape().str());
  }
};

}  // namespace

std::string to_string(const AttributeList& attributes) {
  return with_errors([&] {
    std::string text;
    for (const auto& [name, value] : attributes) {
      if (!text.empty()) text += ' ';
      text += name + "=" + std::visit(Printer{}, value);
    }
    return text;
  });
}

}  // namespace lenslet
