#include "ops/core/epilogue.h"

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
}

void read_epilogue(AttributeReader& reader, Epilogue& epilogue) {
  epilogue.activation.kind = parse_activation_kind(reader.text("activation", "none"));
  epilogue.activation.alpha = static_cast<float>(reader.real("activation_alpha", 0));
  epilogue.activation.beta = static_cast<float>(reader.real("activation_beta", 0));
  epilogue.scale.clear();
  for (const double factor : reader.reals("weight_scale")) epilogue.scale.push_back(static_cast<float>(factor));
}

}  // namespace lenslet
