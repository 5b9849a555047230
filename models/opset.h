#pragma once
// Which version of which operator set a node is written for.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "lenslet/attributes.h"
#include "models/onnx_reader.h"

namespace lenslet {

/// "ai.onnx" and "" name the same domain; this gives "".
std::string_view canonical_domain(std::string_view domain) noexcept;
/// For messages: "ai.onnx" for "".
std::string_view domain_name(std::string_view domain) noexcept;

/// The opset imports of a model or function. Imports of domains that no node uses do not matter.
class Opsets {
 public:
  /// Error(invalid_model) when a domain is imported twice in different versions, or in a version below 1.
  explicit Opsets(const OnnxImports& imports);

  /// The version imported for a domain; Error(invalid_model) when there is none, Error(unsupported) for a version of
  /// ai.onnx above limits::max_opset.
  std::int64_t version(std::string_view domain) const;

 private:
  std::map<std::string, std::int64_t, std::less<>> versions_;
};

}  // namespace lenslet
