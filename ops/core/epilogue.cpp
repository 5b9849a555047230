#include "ops/core/epilogue.h"

#include <fmt/format.h>

#include "ops/core/checks.h"

namespace lenslet {

void append_attributes(AttributeList& list, const Epilogue& epilogue) {
  const Activation& activation = epilogue.activation;
  if (activation.kind != Activation::Kind::none) {
    list.emplace_back("activation", std::string(to_string(activation.kind)));
    if (activation.kind != Activation::Kind::relu) {
      list.emplace_back("activation_alpha", static_cast<double>(activation.alpha));
      list.emplace_back("activation_beta", static_cast<double>(activation.beta));
    }
  }
  if (!epilogue.scale.empty())
    list.emplace_back("weight_scale", std::vector<double>(epilogue.scale.begin(), epilogue.scale.end()));
  if (const auto& to = epilogue.requantize) {
    list.emplace_back("multipliers", std::vector<double>(to->multipliers.begin(), to->multipliers.end()));
    list.emplace_back("zero_point", std::int64_t{to->zero_point});
    list.emplace_back("stored_type", std::string(to_string(to->type)));
    list.emplace_back("x_zero_point", std::int64_t{to->x_zero_point});
    list.emplace_back("stored_range", std::vector<std::int64_t>{to->least, to->most});
  }
}

void read_epilogue(AttributeReader& reader, Epilogue& epilogue) {
  epilogue.activation.kind = parse_activation_kind(reader.text("activation", "none"));
  epilogue.activation.alpha = static_cast<float>(reader.real("activation_alpha", 0));
  epilogue.activation.beta = static_cast<float>(reader.real("activation_beta", 0));
  epilogue.scale.clear();
  for (const double factor : reader.reals("weight_scale")) epilogue.scale.push_back(static_cast<float>(factor));
  epilogue.requantize.reset();
  const std::vector<double> multipliers = reader.reals("multipliers");
  if (multipliers.empty()) return;
  Epilogue::Requantize& to = *(epilogue.requantize = Epilogue::Requantize{});
  to.multipliers = {multipliers.begin(), multipliers.end()};
  to.zero_point = static_cast<std::int32_t>(reader.integer("zero_point", 0));
  to.type = reader.text("stored_type", "uint8") == to_string(DType::i8) ? DType::i8 : DType::u8;
  to.x_zero_point = static_cast<std::int32_t>(reader.integer("x_zero_point", 0));
  if (const std::vector<std::int64_t> range = reader.integers("stored_range"); range.size() == 2) {
    to.least = static_cast<std::int32_t>(range[0]);
    to.most = static_cast<std::int32_t>(range[1]);
  }
}

DType requantized_type(const Epilogue& epilogue, std::span<const InputInfo> inputs) {
  const Epilogue::Requantize& to = *epilogue.requantize;
  const auto weights = static_cast<std::size_t>(epilogue.weight_input);
  require_dtype("x", inputs[0].type.dtype, {DType::i8, DType::u8});
  require_dtype("w", inputs[weights].type.dtype, {DType::i8, DType::u8});
  const auto require_optional = [&](const char* name, int input, DType type) {
    const auto i = static_cast<std::size_t>(input);
    if (input != Epilogue::no_input && present(inputs, i)) require_dtype(name, inputs[i].type.dtype, {type});
  };
  require_optional("bias", epilogue.bias_input, DType::i32);
  require_optional("residual", epilogue.residual_input, to.type);
  const std::int64_t filters = inputs[weights].type.shape[0];
  if (std::ssize(to.multipliers) != filters)
    throw Error(ErrorKind::internal, fmt::format("{} multipliers for {} filters", to.multipliers.size(), filters));
  return to.type;
}

}  // namespace lenslet
