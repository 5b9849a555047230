#include "ops/core/needs_value.h"

#include <fmt/format.h>

namespace lenslet {

NeedsValue::NeedsValue(InputMask inputs, std::string_view name)
    : Error(ErrorKind::unsupported, fmt::format("{} is computed from data: shapes must be known before the run", name)),
      inputs_(inputs) {}

const Tensor& known_value(std::span<const InputInfo> inputs, std::size_t index, std::string_view name) {
  if (inputs[index].constant == nullptr) throw NeedsValue(input_bit(index), name);
  return *inputs[index].constant;
}

}  // namespace lenslet
