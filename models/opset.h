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

  /// The version imported for a domain; Error(invalid_model) when there is none, Error(unsupported) for versions of
  /// ai.onnx that lenslet does not know: below 6, or above limits::max_opset. Operators that never changed are read
  /// from opset 1 on, as of limits::min_opset.
  std::int64_t version(std::string_view domain, std::string_view op_type) const;

 private:
  std::map<std::string, std::int64_t, std::less<>> versions_;
};

/// Opset 6 is read by writing its nodes as of opset 7, where that is possible without knowing shapes: most operators
/// did not change, the others lost attributes such as is_test and broadcast. Error(unsupported) names the attribute of
/// a node that means something else since.
void upgrade_from_opset_6(std::string_view op_type, AttributeList& attributes);

}  // namespace lenslet
