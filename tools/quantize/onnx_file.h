#pragma once
// An ONNX file that can be changed and written again. Fields that are not named here are kept as they are.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lenslet::tool {

/// TensorProto.DataType
enum class OnnxType : std::int32_t { f32 = 1, u8 = 2, i8 = 3, i32 = 6, i64 = 7, f16 = 10, f64 = 11, bf16 = 16 };

struct EditedTensor {
  std::string name;
  std::vector<std::int64_t> dims;
  OnnxType type = OnnxType::f32;
  std::shared_ptr<const std::string> message;  ///< the whole TensorProto, shared by copies of the file
};
EditedTensor make_tensor(std::string name, OnnxType type, std::vector<std::int64_t> dims, std::string_view raw_data);
EditedTensor make_tensor(std::string name, std::vector<std::int64_t> dims, const std::vector<float>& values);
EditedTensor make_tensor(std::string name, const std::vector<std::int64_t>& values);

struct EditedAttribute {
  std::string name, text, tensor, graph;  ///< tensor, graph: a message; empty: none
  std::optional<float> real;
  std::optional<std::int64_t> integer;
  std::vector<float> reals;
  std::vector<std::int64_t> integers;
};

struct EditedNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> attributes;  ///< AttributeProtos
  std::string rest;                     ///< other fields

  /// Its name, else that of its first output.
  const std::string& label() const { return name.empty() && !outputs.empty() ? outputs[0] : name; }
  bool is_standard() const { return domain.empty() || domain == "ai.onnx"; }
  bool has_input(std::size_t i) const { return i < inputs.size() && !inputs[i].empty(); }
  std::optional<EditedAttribute> attribute(std::string_view wanted) const;
  std::int64_t integer(std::string_view wanted, std::int64_t otherwise) const;
  void remove_attribute(std::string_view unwanted);
  void set_attribute(std::string_view name, std::int64_t value);
  void set_attribute(std::string_view name, std::string_view text);
};

struct FloatTensor {
  std::vector<std::int64_t> dims;
  std::vector<float> values;
};

/// A graph's input or output: a ValueInfoProto.
struct EditedPort {
  std::string name, message;
};
/// A float32 tensor of any shape.
EditedPort float_port(const std::string& name);

class OnnxFile {
 public:
  /// Weights in other files, relative to `folder`, are read in. Error(invalid_model) for damage, Error(unsupported) for
  /// nodes out of order, Error(limit) for more than a protobuf file can have, Error(io).
  OnnxFile(std::string_view bytes, const std::filesystem::path& folder);

  /// Error(limit) for 2 GB or more.
  std::string bytes() const;

  const EditedTensor* initializer(const std::string& name) const;
  void add(EditedTensor tensor);
  /// An initializer or a Constant node of float32.
  std::optional<FloatTensor> constant(const std::string& name) const;
  bool is_constant(const std::string& name) const;
  /// `wanted`, or this with a number: a name that no value has, in subgraphs neither.
  std::string new_name(const std::string& wanted);
  /// How often nodes, subgraphs and the graph's outputs read each value.
  std::map<std::string, std::size_t> reads() const;
  bool is_output(const std::string& name) const;
  /// What reads an Identity of a constant reads the constant.
  void skip_identities();
  /// Removes initializers and Constant nodes that nobody reads, and inputs that were their default values.
  void remove_unread();

  std::int64_t ir_version = 0, opset = 0;  ///< of the standard operators
  bool has_functions = false;              ///< model-local ones
  std::vector<EditedNode> nodes;
  std::vector<EditedPort> inputs, outputs;

 private:
  std::string rest_, graph_rest_;
  std::vector<EditedTensor> initializers_;
  std::map<std::string, std::size_t> index_;  // into initializers_
  std::set<std::string> names_;               // all values
  std::vector<EditedPort> value_infos_;
};

}  // namespace lenslet::tool
