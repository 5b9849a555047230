#pragma once
// Nodes as lines of text: "Conv/13 float32[1,4,9,9] float32[6,4,3,3] - pads=1,1,1,1".

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/op.h"

namespace lenslet::test {

struct TextNode {
  std::string op, domain;
  std::int64_t opset = 13;
  std::vector<InputInfo> inputs;  ///< their constants are in `constants`
  std::vector<Tensor> constants;  ///< as many as inputs; empty: not constant
  AttributeList attributes;
  std::size_t outputs = 1;

  void know();  ///< points the inputs to their constants, after a change of these
};

/// "strides=2,1 alpha=0.5 mode=linear bias=1.5,2.5": a comma makes a list, a point real numbers.
AttributeList parse_attributes(std::istream& words);
/// "ms.Pad/1 float32[2,3] int64[4]{0,1,0,1} - mode=constant -> 2": the opset follows the slash (0 for normalised
/// attributes), "ms." and "lenslet." are domains, `-` is an omitted input, {} has a constant's values, and the number
/// of outputs follows if it is not one.
TextNode parse_node(const std::string& line);
std::shared_ptr<const Op> op_of(const TextNode& node);

/// FNV-1a of `text`, continued from `sum`.
std::uint32_t sum_of(std::string_view text, std::uint32_t sum = 2166136261);

/// Compares data/NAME with said(line, details): each line, and the indented lines after it; said() is empty if a line
/// does not begin an entry. Without `whole` it compares only the first lines of an entry. LENSLET_WRITE_TEST_DATA=1
/// rewrites the file. Returns the number of entries; `details` are shown for a difference.
int check_said(const std::string& name, bool whole,
               const std::function<std::string(const std::string& line, std::string& details)>& said);

}  // namespace lenslet::test
