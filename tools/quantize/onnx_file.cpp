#include "tools/quantize/onnx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

using protozero::data_view;
using protozero::pbf_reader;
using protozero::pbf_writer;

constexpr std::size_t most_bytes = (std::size_t{1} << 31) - 1;  // of a protobuf message
constexpr int most_nested = 16;

/// Passes each field to `take`, which reads it and returns true, or returns false: these fields are returned as they
/// are.
std::string take_fields(std::string_view bytes, const std::function<bool(pbf_reader&)>& take) {
  std::string rest;
  pbf_reader reader(data_view(bytes.data(), bytes.size()));
  const auto position = [&] { return bytes.size() - reader.data().size(); };
  for (std::size_t start = 0; reader.next(); start = position())
    if (!take(reader)) {
      reader.skip();
      rest.append(bytes.substr(start, position() - start));
    }
  return rest;
}

std::string_view view_of(pbf_reader& reader) {
  const data_view view = reader.get_view();
  return {view.data(), view.size()};
}

/// A repeated number, packed or not.
template <typename T, typename Packed, typename One>
void append(std::vector<T>& to, pbf_reader& reader, Packed packed, One one) {
  if (reader.wire_type() == protozero::pbf_wire_type::length_delimited)
    for (const auto value : (reader.*packed)()) to.push_back(static_cast<T>(value));
  else
    to.push_back(static_cast<T>((reader.*one)()));
}

EditedAttribute read_attribute(std::string_view bytes) {
  EditedAttribute attribute;
  take_fields(bytes, [&](pbf_reader& field) {
    switch (field.tag()) {
      case 1:
        return attribute.name = field.get_string(), true;
      case 2:
        return attribute.real = field.get_float(), true;
      case 3:
        return attribute.integer = field.get_int64(), true;
      case 4:
        return attribute.text = field.get_string(), true;
      case 5:
        return attribute.tensor = field.get_string(), true;
      case 6:
        return attribute.graph = field.get_string(), true;
      case 7:
        return append(attribute.reals, field, &pbf_reader::get_packed_float, &pbf_reader::get_float), true;
      case 8:
        return append(attribute.integers, field, &pbf_reader::get_packed_int64, &pbf_reader::get_int64), true;
      default:
        return false;
    }
  });
  return attribute;
}

std::string node_bytes(const EditedNode& node) {
  std::string bytes;
  pbf_writer writer(bytes);
  for (const std::string& input : node.inputs) writer.add_string(1, input);
  for (const std::string& output : node.outputs) writer.add_string(2, output);
  if (!node.name.empty()) writer.add_string(3, node.name);
  writer.add_string(4, node.op);
  for (const std::string& attribute : node.attributes) writer.add_message(5, attribute);
  if (!node.domain.empty()) writer.add_string(7, node.domain);
  return bytes + node.rest;
}

/// Bytes of a tensor of that many elements; nothing for a type without a fixed size, or more than memory.
std::optional<std::uint64_t> bytes_of(const EditedTensor& tensor) {
  constexpr std::array<std::uint64_t, 24> bits = {0,  32, 8,  8,   16, 16, 32, 64, 0, 8, 16, 64,
                                                  32, 64, 64, 128, 16, 8,  8,  8,  8, 4, 4,  4};
  const auto type = static_cast<std::size_t>(tensor.type);
  if (type >= bits.size() || bits[type] == 0) return std::nullopt;
  std::uint64_t elems = 1;
  for (const std::int64_t dim : tensor.dims) {
    if (dim < 0 || static_cast<std::uint64_t>(dim) > most_bytes) return std::nullopt;
    elems *= static_cast<std::uint64_t>(dim);
    if (elems > 2 * most_bytes) return std::nullopt;
  }
  return (elems * bits[type] + 7) / 8;
}

/// A part of a weight file. The loader judged the names of weights that are read, others are judged here.
std::string read_external(const std::filesystem::path& folder, const std::map<std::string, std::string>& entries,
                          std::optional<std::uint64_t> size) {
  const auto entry = [&](const char* key) {
    const auto found = entries.find(key);
    return found == entries.end() ? std::string() : found->second;
  };
  const std::filesystem::path location = entry("location"), file = folder / location;
  const std::string offset = entry("offset"), length = entry("length");
  std::error_code ignored;
  const auto is_number = [](const std::string& text) {
    return text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (folder.empty() || location.empty() || location.is_absolute() ||
      std::ranges::find(location, std::filesystem::path("..")) != location.end() ||
      !std::filesystem::is_regular_file(std::filesystem::symlink_status(file, ignored)) || !is_number(offset) ||
      !is_number(length))
    throw Error(ErrorKind::invalid_model, "external data outside the model's folder, or in no file", location.string());
  std::ifstream stream(file, std::ios::binary);
  const std::uint64_t begin = offset.empty() ? 0 : std::stoull(offset);
  stream.seekg(0, std::ios::end);
  const auto end = static_cast<std::uint64_t>(std::max<std::streamoff>(stream.tellg(), 0));
  const std::uint64_t count =
      length.empty() ? size.value_or(end - std::min(begin, end)) : std::stoull(length);  // others' data may follow
  if (!stream || begin > end || count > end - begin)
    throw Error(ErrorKind::io, "external data cannot be read", file.string());
  if (count > most_bytes)
    throw Error(ErrorKind::limit, "the weights are too large for one file of 2 GB", file.string());
  std::string bytes(count, '\0');
  stream.seekg(static_cast<std::streamoff>(begin));
  stream.read(bytes.data(), static_cast<std::streamsize>(count));
  if (!stream) throw Error(ErrorKind::io, "external data cannot be read", file.string());
  return bytes;
}

EditedTensor read_tensor(std::string_view bytes, const std::filesystem::path& folder) {
  EditedTensor tensor;
  bool external = false;
  std::map<std::string, std::string> entries;
  std::string rest = take_fields(bytes, [&](pbf_reader& field) {
    switch (field.tag()) {
      case 13: {
        std::string key, value;
        take_fields(view_of(field), [&](pbf_reader& entry) {
          if (entry.tag() != 1 && entry.tag() != 2) return false;
          std::string& to = entry.tag() == 1 ? key : value;
          to = entry.get_string();
          return true;
        });
        entries[key] = value;
        return true;
      }
      case 14:
        external = field.get_enum() == 1;
        return true;
      default:
        return false;
    }
  });
  take_fields(rest, [&](pbf_reader& field) {
    if (field.tag() == 1)
      append(tensor.dims, field, &pbf_reader::get_packed_int64, &pbf_reader::get_int64);
    else if (field.tag() == 2)
      tensor.type = static_cast<OnnxType>(field.get_int32());
    else if (field.tag() == 8)
      tensor.name = field.get_string();
    else
      return false;
    return true;
  });
  if (external) pbf_writer(rest).add_bytes(9, read_external(folder, entries, bytes_of(tensor)));
  tensor.message = std::make_shared<const std::string>(external ? std::move(rest) : std::string(bytes));
  return tensor;
}

std::string with_weights_inside(std::string_view graph, const std::filesystem::path& folder, int depth);

/// An attribute whose tensors, in its subgraphs, too, have their data in it.
std::string inside_attribute(std::string_view bytes, const std::filesystem::path& folder, int depth) {
  std::string tensors;
  std::string rest = take_fields(bytes, [&](pbf_reader& field) {
    pbf_writer writer(tensors);
    if (field.tag() == 5)
      writer.add_message(5, *read_tensor(view_of(field), folder).message);
    else if (field.tag() == 6)
      writer.add_message(6, with_weights_inside(view_of(field), folder, depth + 1));
    else
      return false;
    return true;
  });
  return rest + tensors;
}

std::string with_weights_inside(std::string_view graph, const std::filesystem::path& folder, int depth) {
  if (depth > most_nested) throw Error(ErrorKind::limit, "subgraphs are nested too deeply");
  std::string changed;
  std::string rest = take_fields(graph, [&](pbf_reader& field) {
    pbf_writer writer(changed);
    if (field.tag() == 5) return writer.add_message(5, *read_tensor(view_of(field), folder).message), true;
    if (field.tag() != 1) return false;
    std::string attributes;
    std::string node = take_fields(view_of(field), [&](pbf_reader& part) {
      if (part.tag() != 5) return false;
      pbf_writer(attributes).add_message(5, inside_attribute(view_of(part), folder, depth));
      return true;
    });
    return writer.add_message(1, node + attributes), true;
  });
  return rest + changed;
}

/// With a `folder`, weights in other files are read in.
EditedNode read_node(std::string_view bytes, const std::filesystem::path& folder = {}) {
  EditedNode node;
  node.rest = take_fields(bytes, [&](pbf_reader& field) {
    switch (field.tag()) {
      case 1:
        return node.inputs.push_back(field.get_string()), true;
      case 2:
        return node.outputs.push_back(field.get_string()), true;
      case 3:
        return node.name = field.get_string(), true;
      case 4:
        return node.op = field.get_string(), true;
      case 5:
        node.attributes.push_back(field.get_string());
        if (!folder.empty()) node.attributes.back() = inside_attribute(node.attributes.back(), folder, 0);
        return true;
      case 7:
        return node.domain = field.get_string(), true;
      default:
        return false;
    }
  });
  return node;
}

FloatTensor read_floats(const EditedTensor& tensor) {
  FloatTensor floats{tensor.dims, {}};
  take_fields(*tensor.message, [&](pbf_reader& field) {
    if (field.tag() == 4)
      return append(floats.values, field, &pbf_reader::get_packed_float, &pbf_reader::get_float), true;
    if (field.tag() != 9) return false;
    const std::string_view raw = view_of(field);
    floats.values.resize(raw.size() / sizeof(float));
    std::memcpy(floats.values.data(), raw.data(), floats.values.size() * sizeof(float));
    return true;
  });
  return floats;
}

void count_reads(std::string_view graph, std::map<std::string, std::size_t>& counts, int depth) {
  if (depth > most_nested) throw Error(ErrorKind::limit, "subgraphs are nested too deeply");
  take_fields(graph, [&](pbf_reader& field) {
    if (field.tag() != 1) return false;
    const EditedNode node = read_node(view_of(field));
    for (const std::string& input : node.inputs) ++counts[input];
    for (const std::string& attribute : node.attributes)
      count_reads(read_attribute(attribute).graph, counts, depth + 1);
    return true;
  });
}

EditedPort read_port(std::string_view bytes) {
  EditedPort port{{}, std::string(bytes)};
  take_fields(bytes, [&](pbf_reader& field) { return field.tag() == 1 && (port.name = field.get_string(), true); });
  return port;
}

/// The names of values in a subgraph and in those within it.
void collect_names(std::string_view graph, std::set<std::string>& names, int depth) {
  if (depth > most_nested) throw Error(ErrorKind::limit, "subgraphs are nested too deeply");
  take_fields(graph, [&](pbf_reader& field) {
    if (field.tag() == 1) {
      const EditedNode node = read_node(view_of(field));
      names.insert(node.outputs.begin(), node.outputs.end());
      for (const std::string& attribute : node.attributes)
        collect_names(read_attribute(attribute).graph, names, depth + 1);
    } else if (field.tag() == 5) {
      names.insert(read_tensor(view_of(field), {}).name);
    } else if (field.tag() == 11) {
      names.insert(read_port(view_of(field)).name);
    } else {
      return false;
    }
    return true;
  });
}

std::string attribute_bytes(std::string_view name, int type, const std::function<void(pbf_writer&)>& value) {
  std::string bytes;
  pbf_writer writer(bytes);
  writer.add_string(1, name.data(), name.size());
  value(writer);
  writer.add_enum(20, type);
  return bytes;
}

}  // namespace

EditedTensor make_tensor(std::string name, OnnxType type, std::vector<std::int64_t> dims, std::string_view raw_data) {
  std::string bytes;
  pbf_writer writer(bytes);
  for (const std::int64_t dim : dims) writer.add_int64(1, dim);
  writer.add_int32(2, static_cast<std::int32_t>(type));
  writer.add_string(8, name);
  writer.add_bytes(9, raw_data.data(), raw_data.size());
  return {std::move(name), std::move(dims), type, std::make_shared<const std::string>(std::move(bytes))};
}

EditedTensor make_tensor(std::string name, std::vector<std::int64_t> dims, const std::vector<float>& values) {
  return make_tensor(std::move(name), OnnxType::f32, std::move(dims),
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

EditedTensor make_tensor(std::string name, const std::vector<std::int64_t>& values) {
  return make_tensor(std::move(name), OnnxType::i64, {static_cast<std::int64_t>(values.size())},
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)});
}

EditedPort float_port(const std::string& name) {
  std::string tensor, type, port;
  pbf_writer(tensor).add_enum(1, static_cast<std::int32_t>(OnnxType::f32));
  pbf_writer(type).add_message(1, tensor);
  pbf_writer writer(port);
  writer.add_string(1, name);
  writer.add_message(2, type);
  return {name, port};
}

std::optional<EditedAttribute> EditedNode::attribute(std::string_view wanted) const {
  for (const std::string& bytes : attributes)
    if (EditedAttribute found = read_attribute(bytes); found.name == wanted) return found;
  return std::nullopt;
}

std::int64_t EditedNode::integer(std::string_view wanted, std::int64_t otherwise) const {
  const auto found = attribute(wanted);
  return found ? found->integer.value_or(otherwise) : otherwise;
}

void EditedNode::remove_attribute(std::string_view unwanted) {
  std::erase_if(attributes, [&](const std::string& bytes) { return read_attribute(bytes).name == unwanted; });
}

void EditedNode::set_attribute(std::string_view of, std::int64_t value) {
  remove_attribute(of);
  attributes.push_back(attribute_bytes(of, 2, [&](pbf_writer& writer) { writer.add_int64(3, value); }));
}

void EditedNode::set_attribute(std::string_view of, std::string_view text) {
  remove_attribute(of);
  attributes.push_back(
      attribute_bytes(of, 3, [&](pbf_writer& writer) { writer.add_bytes(4, text.data(), text.size()); }));
}

OnnxFile::OnnxFile(std::string_view bytes, const std::filesystem::path& folder) try {
  const auto read_graph = [&](pbf_reader& field) {
    switch (field.tag()) {
      case 1:
        return nodes.push_back(read_node(view_of(field), folder)), true;
      case 5:
        return add(read_tensor(view_of(field), folder)), true;
      case 11:
        return inputs.push_back(read_port(view_of(field))), true;
      case 12:
        return outputs.push_back(read_port(view_of(field))), true;
      case 13:
        return value_infos_.push_back(read_port(view_of(field))), true;
      default:
        return false;
    }
  };
  rest_ = take_fields(bytes, [&](pbf_reader& field) {
    if (field.tag() == 1) {
      ir_version = field.get_int64();
    } else if (field.tag() == 7) {
      graph_rest_ += take_fields(view_of(field), read_graph);
    } else if (field.tag() == 25) {
      has_functions = true;
      return false;
    } else if (field.tag() == 8) {
      pbf_reader unread = field;  // copied if it is another domain's
      std::string domain;
      std::int64_t version = 0;
      take_fields(view_of(unread), [&](pbf_reader& import) {
        if (import.tag() == 1) return domain = import.get_string(), true;
        return import.tag() == 2 && (version = import.get_int64(), true);
      });
      if (!domain.empty() && domain != "ai.onnx") return false;
      field.skip();
      opset = version;
    } else {
      return false;
    }
    return true;
  });
  std::set<std::string> known;
  for (const EditedPort& input : inputs) known.insert(input.name);
  for (const EditedTensor& tensor : initializers_) known.insert(tensor.name);
  for (const EditedNode& node : nodes) {
    if (node.outputs.empty()) throw Error(ErrorKind::invalid_model, "has no output", fmt::format("node {}", node.name));
    for (const std::string& input : node.inputs)
      if (!input.empty() && !known.contains(input))
        throw Error(ErrorKind::unsupported, fmt::format("node {} comes before the one that computes its input {}: sort "
                                                        "the file's nodes (onnx.checker refuses it, too)",
                                                        node.label(), input));
    known.insert(node.outputs.begin(), node.outputs.end());
  }
  names_ = std::move(known);
  for (const EditedNode& node : nodes)
    for (const std::string& attribute : node.attributes) collect_names(read_attribute(attribute).graph, names_, 0);
} catch (const protozero::exception& error) {
  throw Error(ErrorKind::invalid_model, fmt::format("damaged: {}", error.what()));
}

std::string OnnxFile::bytes() const {
  std::string graph;
  pbf_writer writer(graph);
  for (const EditedNode& node : nodes) writer.add_message(1, node_bytes(node));
  graph += graph_rest_;
  for (const EditedTensor& tensor : initializers_) writer.add_message(5, *tensor.message);
  for (const EditedPort& port : inputs) writer.add_message(11, port.message);
  for (const EditedPort& port : outputs) writer.add_message(12, port.message);
  std::set<std::string> known;
  for (const EditedNode& node : nodes) known.insert(node.outputs.begin(), node.outputs.end());
  for (const EditedPort& info : value_infos_)
    if (known.contains(info.name)) writer.add_message(13, info.message);
  std::string import;
  pbf_writer(import).add_int64(2, opset);
  std::string bytes;
  pbf_writer model(bytes);
  model.add_int64(1, ir_version);
  model.add_message(7, graph);
  model.add_message(8, import);
  bytes += rest_;
  if (bytes.size() > most_bytes)
    throw Error(ErrorKind::limit, fmt::format("the result has {} bytes; one file can have 2 GB", bytes.size()));
  return bytes;
}

const EditedTensor* OnnxFile::initializer(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &initializers_[found->second];
}

void OnnxFile::add(EditedTensor tensor) {
  names_.insert(tensor.name);
  index_[tensor.name] = initializers_.size();
  initializers_.push_back(std::move(tensor));
}

std::optional<FloatTensor> OnnxFile::constant(const std::string& name) const {
  if (const EditedTensor* tensor = initializer(name); tensor != nullptr && tensor->type == OnnxType::f32)
    return read_floats(*tensor);
  for (const EditedNode& node : nodes) {
    if (node.op != "Constant" || node.outputs[0] != name) continue;
    if (const auto value = node.attribute("value")) {
      const EditedTensor tensor = read_tensor(value->tensor, {});
      return tensor.type == OnnxType::f32 ? std::optional(read_floats(tensor)) : std::nullopt;
    }
    if (const auto value = node.attribute("value_float"); value && value->real) return FloatTensor{{}, {*value->real}};
  }
  return std::nullopt;
}

bool OnnxFile::is_constant(const std::string& name) const {
  return index_.contains(name) || std::ranges::any_of(nodes, [&](const EditedNode& node) {
           return node.op == "Constant" && node.outputs[0] == name;
         });
}

std::string OnnxFile::new_name(const std::string& wanted) {
  std::string name = wanted;
  for (int number = 2; !names_.insert(name).second; ++number) name = fmt::format("{}_{}", wanted, number);
  return name;
}

std::map<std::string, std::size_t> OnnxFile::reads() const {
  std::map<std::string, std::size_t> counts;
  for (const EditedNode& node : nodes) {
    for (const std::string& input : node.inputs) ++counts[input];
    for (const std::string& attribute : node.attributes) count_reads(read_attribute(attribute).graph, counts, 0);
  }
  for (const EditedPort& output : outputs) ++counts[output.name];
  return counts;
}

bool OnnxFile::is_output(const std::string& name) const {
  return std::ranges::any_of(outputs, [&](const EditedPort& output) { return output.name == name; });
}

void OnnxFile::skip_identities() {
  const auto counts = reads();
  std::map<std::string, std::string> same;
  std::map<std::string, std::size_t> skipped;
  for (EditedNode& node : nodes) {
    for (std::string& input : node.inputs)
      if (const auto found = same.find(input); found != same.end()) {
        ++skipped[input];
        input = found->second;
      }
    if (node.op == "Identity" && node.is_standard() && node.has_input(0) && is_constant(node.inputs[0]))
      same[node.outputs[0]] = node.inputs[0];
  }
  std::erase_if(nodes, [&](const EditedNode& node) {
    if (!same.contains(node.outputs[0])) return false;
    const auto count = counts.find(node.outputs[0]);
    return count == counts.end() || count->second == skipped[node.outputs[0]];
  });
}

void OnnxFile::remove_unread() {
  const auto counts = reads();
  const auto unread = [&](const std::string& name) { return !counts.contains(name); };
  std::erase_if(inputs, [&](const EditedPort& input) { return index_.contains(input.name); });
  std::erase_if(initializers_, [&](const EditedTensor& tensor) { return unread(tensor.name); });
  std::erase_if(nodes, [&](const EditedNode& node) { return node.op == "Constant" && unread(node.outputs[0]); });
  index_.clear();
  for (std::size_t i = 0; i < initializers_.size(); ++i) index_[initializers_[i].name] = i;
}

}  // namespace lenslet::tool
