// Convolutions as text, in either notation.

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <regex>
#include <sstream>
#include <string_view>
#include <vector>

#include "lenslet/error.h"
#include "tools/measuring/conv_sets.h"

namespace lenslet::tool {

namespace {

using Numbers = std::vector<std::int64_t>;

// Of numbers with `separator` between them; nothing when one is none, or beyond an int64.
std::optional<Numbers> split(std::string_view text, char separator) {
  Numbers numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc()) return {};
    if (next == end) return numbers;
    if (*next != separator) return {};
    at = next + 1;
  }
}

ConvProblem resolved(const Numbers& sizes, const Numbers& filter, const ConvGeometry& geometry) {
  if (geometry.groups < 1 || sizes[1] % geometry.groups != 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} groups do not divide {} channels", geometry.groups, sizes[1]));
  return resolve_conv({sizes[0], sizes[1], sizes[2], sizes[3]},
                      {filter[0], sizes[1] / geometry.groups, filter[1], filter[2]}, geometry);
}

std::optional<ConvProblem> of_numbers(const std::string& text) {
  const auto given = split(text, ',');
  if (!given || given->size() < 7 || given->size() > 11) return {};
  const auto or_else = [&](std::size_t i, std::int64_t fallback) {
    return i < given->size() ? given->at(i) : fallback;
  };
  const std::int64_t stride = or_else(7, 1), pad = or_else(8, 0), dilation = or_else(9, 1), groups = or_else(10, 1);
  return resolved(
      {given->begin(), given->begin() + 4}, {given->begin() + 4, given->begin() + 7},
      {.stride = {stride, stride}, .dilation = {dilation, dilation}, .pads = {pad, pad, pad, pad}, .groups = groups});
}

// "2" or "2x1".
std::optional<std::array<std::int64_t, 2>> pair(const std::string& text) {
  const auto numbers = split(text, 'x');
  if (!numbers || numbers->size() > 2) return {};
  return std::array{numbers->front(), numbers->back()};
}

// "relu", "clip(0,6)".
Activation parse_activation(const std::string& text) {
  const std::size_t open = text.find('(');
  Activation activation{.kind = parse_activation_kind(text.substr(0, open))};
  if (open != std::string::npos) {
    const char* at = text.data() + open + 1;
    const char* const end = text.data() + text.size();
    for (float* parameter : {&activation.alpha, &activation.beta}) {
      const auto [next, error] = std::from_chars(at, end, *parameter);
      if (error != std::errc() || next == end) break;
      at = next + 1;
    }
  }
  if (to_string(activation) != text)
    throw Error(ErrorKind::invalid_argument, fmt::format("there is no activation '{}'", text));
  return activation;
}

std::optional<ConvProblem> of_words(const std::string& text) {
  // N x C x H x W -> K, R x S, strides, pads, groups, dilations, epilogue
  static const std::regex notation(
      R"((\d+x\d+x\d+x\d+) -> (\d+), (\d+x\d+) s([\dx]+) p([\dx,]+) g(\d+)(?: d([\dx]+))?((?: \+[^ ]+)*))");
  std::smatch part;
  if (text.size() > 1000 || !std::regex_match(text, part, notation)) return {};
  const auto sizes = split(part.str(1), 'x'), k = split(part.str(2), ','), filter = split(part.str(3), 'x'),
             groups = split(part.str(6), ',');
  const auto stride = pair(part.str(4)),
             dilation = part[7].matched ? pair(part.str(7)) : std::array<std::int64_t, 2>{1, 1};
  std::optional<std::array<std::int64_t, 4>> pads;
  if (const auto both = pair(part.str(5)))
    pads = {{(*both)[0], (*both)[1], (*both)[0], (*both)[1]}};
  else if (const auto all = split(part.str(5), ','); all && all->size() == 4)
    pads = {{(*all)[0], (*all)[1], (*all)[2], (*all)[3]}};
  if (!sizes || !k || !filter || !groups || !stride || !dilation || !pads) return {};
  ConvProblem problem = resolved(*sizes, {k->at(0), filter->at(0), filter->at(1)},
                                 {.stride = *stride, .dilation = *dilation, .pads = *pads, .groups = groups->at(0)});
  std::istringstream epilogue(part.str(8));
  for (std::string name; epilogue >> name;) {
    if (name == "+bias")
      problem.bias = true;
    else if (name == "+residual")
      problem.residual = true;
    else
      problem.activation = parse_activation(name.substr(1));
  }
  return problem;
}

}  // namespace

NamedConv parse_conv(const std::string& text) {
  try {
    if (const auto problem = of_numbers(text)) return {text, *problem};
    if (const auto problem = of_words(text)) return {text, *problem, true};
  } catch (const Error& error) {
    throw Error(ErrorKind::invalid_argument, fmt::format("\"{}\": {}", text, error.what()));
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("\"{}\" is no convolution: N,C,H,W,K,R,S[,stride[,pad[,dilation[,groups]]]], or as "
                          "`lenslet layers` prints it: \"1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu\"",
                          text));
}

}  // namespace lenslet::tool
