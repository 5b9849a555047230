#pragma once
// Reads the attributes of one node while it is parsed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/attributes.h"

namespace lenslet {

struct NodeSpec;

/// Each getter checks the kind and marks the name as read; `finish` throws for attributes that were never read. All
/// throw Error(invalid_model | unsupported) that names the attribute.
class AttributeReader {
 public:
  explicit AttributeReader(const AttributeList& attributes)
      : attributes_(attributes), used_(attributes.size(), false) {}
  explicit AttributeReader(const NodeSpec& spec);
  bool has(std::string_view name);
  std::int64_t integer(std::string_view name, std::int64_t fallback);
  std::int64_t required_integer(std::string_view name);
  bool flag(std::string_view name, bool fallback) { return integer(name, fallback ? 1 : 0) != 0; }
  double real(std::string_view name, double fallback);
  std::string text(std::string_view name, std::string_view fallback);
  /// Empty when absent.
  std::vector<std::int64_t> integers(std::string_view name);
  std::vector<double> reals(std::string_view name);
  std::optional<Tensor> tensor(std::string_view name);
  /// Accept and ignore (an attribute without effect on inference).
  void ignore(std::string_view name);
  void finish() const;

 private:
  const AttributeValue* find(std::string_view name);
  const AttributeList& attributes_;
  std::vector<bool> used_;
};

}  // namespace lenslet
