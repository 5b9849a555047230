#include "tests/ops/node_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "oracle/oracle.h"

namespace lenslet::test {
namespace {

std::vector<double> parse_numbers(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream words(text);
  for (std::string number; std::getline(words, number, ',');)
    if (!number.empty()) numbers.push_back(std::stod(number));
  return numbers;
}

AttributeValue parse_value(const std::string& name, const std::string& value) {
  const bool several = value.find(',') != value.npos, real = value.find('.') != value.npos;
  if (value.find_first_not_of("-0123456789.,") != value.npos) {
    if (!several || name == "equation") return value;
    std::vector<std::string> texts;
    std::istringstream words(value);
    for (std::string text; std::getline(words, text, ',');) texts.push_back(text);
    return texts;
  }
  const std::vector<double> numbers = parse_numbers(value);
  if (real && several) return numbers;
  if (real) return numbers.at(0);
  if (several) return std::vector<std::int64_t>(numbers.begin(), numbers.end());
  return static_cast<std::int64_t>(numbers.at(0));
}

DType parse_type(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::u2); ++i)
    if (to_string(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  FAIL("no type " << name);
  return DType::f32;
}

}  // namespace

void TextNode::know() {
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].constant = constants[i].empty() ? nullptr : &constants[i];
}

AttributeList parse_attributes(std::istream& words) {
  AttributeList list;
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    const std::string name = word.substr(0, at);
    list.emplace_back(name, parse_value(name, word.substr(at + 1)));
  }
  return list;
}

TextNode parse_node(const std::string& line) {
  TextNode node;
  std::istringstream words(line), numbers;
  std::getline(words, node.op, '/');
  for (const auto& [prefix, domain] : {std::pair{"ms.", "com.microsoft"}, {"lenslet.", "lenslet"}})
    if (node.op.starts_with(prefix)) {
      node.op.erase(0, std::string(prefix).size());
      node.domain = domain;
    }
  words >> node.opset;
  std::string attributes;
  for (std::string word; words >> word;) {
    if (word == "->") {
      words >> node.outputs;
    } else if (word == "-") {
      node.inputs.emplace_back();
      node.constants.emplace_back();
    } else if (const std::size_t dims = word.find('['); dims != word.npos) {
      const std::size_t end = word.find(']');
      const std::vector<double> sizes = parse_numbers(word.substr(dims + 1, end - dims - 1));
      const TensorType type{parse_type(word.substr(0, dims)),
                            Shape(std::vector<std::int64_t>(sizes.begin(), sizes.end()))};
      node.inputs.push_back({true, type, nullptr});
      node.constants.emplace_back();
      if (word.find('{') == word.npos) continue;
      oracle::Array array{.shape = type.shape, .values = parse_numbers(word.substr(end + 2, word.size() - end - 3))};
      array.dtype = type.dtype;
      node.constants.back() = oracle::to_tensor(array);
    } else {
      attributes += word + " ";
    }
  }
  std::istringstream rest(attributes);
  node.attributes = parse_attributes(rest);
  node.know();
  return node;
}

std::shared_ptr<const Op> op_of(const TextNode& node) {
  if (node.opset == 0) return make_normalised_op(node.op, node.attributes, node.inputs.size(), node.outputs);
  return make_op(node.op, node.domain, node.attributes, node.inputs.size(), node.outputs, node.opset);
}

std::uint32_t sum_of(std::string_view text, std::uint32_t sum) {
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619;
  return sum;
}

int check_said(const std::string& name, bool whole,
               const std::function<std::string(const std::string& line, std::string& details)>& said) {
  const std::string path = LENSLET_SOURCE_DIR "/tests/ops/data/" + name;
  std::ifstream file(path);
  std::string node, expected, written;
  int count = 0;
  const auto check = [&] {
    if (node.empty()) return;
    std::string details;
    const std::string found = said(node, details);
    const std::size_t looked_at = whole ? expected.size() : std::min(found.size(), expected.size());
    if (!found.empty()) {
      CAPTURE(node);
      INFO(details);
      CHECK(found == expected.substr(0, looked_at));
      ++count;
    }
    written += node + "\n";
    if (found.empty() || !whole) {  // as many lines as were produced
      std::size_t rest = 0;
      for (auto lines = std::ranges::count(found, '\n'); lines > 0; --lines) rest = expected.find('\n', rest) + 1;
      written += found + expected.substr(rest);
    } else {
      written += found;
    }
  };
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(' ')) {
      expected += line + "\n";
      continue;
    }
    check();
    node = line;
    expected.clear();
  }
  check();
  file.close();
  if (std::getenv("LENSLET_WRITE_TEST_DATA") != nullptr) std::ofstream(path) << written;
  return count;
}

}  // namespace lenslet::test
