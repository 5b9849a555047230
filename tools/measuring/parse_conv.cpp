#include "tools/measuring/parse_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "lenslet/error.h"

namespace lenslet {

namespace {

using Numbers = std::vector<std::int64_t>;

// Parses numbers separated by `separator`; nullopt if one is invalid or exceeds an int64.
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

// After `letter`: "s2" or "s2x1".
std::optional<std::array<std::int64_t, 2>> pair(std::string_view word, char letter) {
  if (!word.starts_with(letter)) return {};
  const auto numbers = split(word.substr(1), 'x');
  if (!numbers || numbers->size() > 2) return {};
  return std::array{numbers->front(), numbers->back()};
}

// "p1", "p1x2" (height and width) or "p1,2,3,4" (top, left, bottom, right).
std::optional<std::array<std::int64_t, 4>> pads(std::string_view word) {
  if (const auto both = pair(word, 'p')) return {{(*both)[0], (*both)[1], (*both)[0], (*both)[1]}};
  const auto all = word.starts_with('p') ? split(word.substr(1), ',') : std::nullopt;
  if (!all || all->size() != 4) return {};
  return {{(*all)[0], (*all)[1], (*all)[2], (*all)[3]}};
}

// "relu", "clip(0,6)", "hard_swish" (ONNX's).
Activation parse_activation(const std::string& text) {
  if (text == "hard_swish") return {Activation::Kind::hard_swish, 1.0F / 6, 0.5F};
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

// N x C x H x W -> K, R x S, strides, pads, groups, dilations, epilogue
std::optional<ConvProblem> of_words(std::string_view text) {
  const auto word = [&] {
    const std::string_view first = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(first.size() + 1, text.size()));
    return first;
  };
  const auto sizes = split(word(), 'x');
  const bool arrow = word() == "->";
  const std::string_view filters = word();
  const auto k = split(filters.substr(0, filters.find(',')), ','), window = split(word(), 'x');
  const auto stride = pair(word(), 's');
  const auto pad = pads(word());
  const auto groups = pair(word(), 'g');
  const auto dilation = text.starts_with('d') ? pair(word(), 'd') : std::array<std::int64_t, 2>{1, 1};
  if (!sizes || sizes->size() != 4 || !arrow || !filters.ends_with(',') || !k || !window || window->size() != 2 ||
      !stride || !pad || !groups || (*groups)[0] != (*groups)[1] || !dilation)
    return {};
  ConvProblem problem = resolved(*sizes, {k->front(), window->front(), window->back()},
                                 {.stride = *stride, .dilation = *dilation, .pads = *pad, .groups = (*groups)[0]});
  while (!text.empty()) {
    const std::string_view name = word();
    if (!name.starts_with('+')) return {};
    if (name == "+bias")
      problem.bias = true;
    else if (name == "+residual")
      problem.residual = true;
    else
      problem.activation = parse_activation(std::string(name.substr(1)));
  }
  return problem;
}

}  // namespace

ConvProblem parse_conv(const std::string& text) {
  try {
    if (const auto problem = of_numbers(text)) return *problem;
    if (const auto problem = of_words(text)) return *problem;
  } catch (const Error& error) {
    throw Error(ErrorKind::invalid_argument, fmt::format("\"{}\": {}", text, error.what()));
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("\"{}\" is no convolution: N,C,H,W,K,R,S[,stride[,pad[,dilation[,groups]]]], or as "
                          "`lenslet layers` prints it: \"1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu\"",
                          text));
}

}  // namespace lenslet
