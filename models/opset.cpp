#include "models/opset.h"

#include <fmt/format.h>

#include "lenslet/error.h"
#include "models/limits.h"

namespace lenslet {

std::string_view canonical_domain(std::string_view domain) noexcept {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

std::string_view domain_name(std::string_view domain) noexcept { return domain.empty() ? "ai.onnx" : domain; }

Opsets::Opsets(const OnnxImports& imports) {
  for (const auto& [domain, version] : imports) {
    const auto [entry, inserted] = versions_.emplace(canonical_domain(domain), version);
    if (!inserted && entry->second != version)
      throw Error(ErrorKind::invalid_model, fmt::format("imports versions {} and {} of {}", entry->second, version,
                                                        domain_name(canonical_domain(domain))));
    if (version < 1)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("imports version {} of {}", version, domain_name(canonical_domain(domain))));
  }
}

std::int64_t Opsets::version(std::string_view domain) const {
  const auto found = versions_.find(domain);
  if (found == versions_.end())
    throw Error(ErrorKind::invalid_model, fmt::format("the model imports no opset of {}", domain_name(domain)));
  if (domain.empty() && found->second > limits::max_opset)
    throw Error(ErrorKind::unsupported,
                fmt::format("opset {} of ai.onnx; supported are 1 to {}", found->second, limits::max_opset));
  return found->second;
}

}  // namespace lenslet
