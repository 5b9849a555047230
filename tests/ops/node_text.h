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
  std::vector<InputInfo> inputs;  ///< their constants are those of `constants`
  std::vector<Tensor> constants;  ///< as many as inputs; empty: not known
  AttributeList attributes;
  std::size_t outputs = 1;

  void know();  ///< lets the inputs point to their constants, after a change of these
};

/// "strides=2,1 alpha=0.5 mode=linear bias=1.5,2.5": a comma makes a list, a point real numbers.
AttributeList parse_attributes(std::istream& words);
/// "ms.Pad/1 float32[2,3] int64[4]{0,1,0,1} - mode=constant -> 2": the opset behind the stroke, 0 where attributes are
/// normalised, "ms." and "lenslet." for domains, `-` for an input that is left out, values of one that is known, and
/// outputs where they are not one.
TextNode parse_node(const std::string& line);
std::shared_ptr<const Op> op_of(const TextNode& node);

/// FNV-1a of the text behind what `sum` is of.
std::uint32_t sum_of(std::string_view text, std::uint32_t sum = 2166136261);

/// Of data/NAME: lines, each with indented ones behind it, which said(line, details) is to give; nothing where the line
/// is none of its own. Not `whole`: the first of them only. With LENSLET_WRITE_TEST_DATA=1 what is said is written
/// there. Returns of how many lines something was said; `details` are shown where it is not what the file has.
int check_said(const std::string& name, bool whole,
               const std::function<std::string(const std::string& line, std::string& details)>& said);

}  // namespace lenslet::test
