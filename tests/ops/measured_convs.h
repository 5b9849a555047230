#pragma once
// Measured times of convolutions, tests/ops/data/*.txt, one problem a line: "BY | PROBLEM | ALGORITHM CONFIG US | ...".

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tools/measuring/parse_conv.h"

namespace lenslet::test {

struct MeasuredConv {
  std::string by;  ///< the layer's name, the precision or the threads
  ConvProblem problem;
  std::map<std::string, double, std::less<>> us;  ///< by algorithm and configuration; without conversions of formats
};

inline std::vector<MeasuredConv> read_measured(const std::string& name) {
  std::ifstream file(LENSLET_SOURCE_DIR "/tests/ops/data/" + name);
  REQUIRE(file);
  std::vector<MeasuredConv> all;
  for (std::string line; std::getline(file, line);) {
    const auto part = [&line] {
      const std::size_t end = line.find(" | ");
      const std::string first = line.substr(0, end);
      line.erase(0, end == std::string::npos ? end : end + 3);
      return first;
    };
    CAPTURE(line);
    MeasuredConv& conv = all.emplace_back();
    conv.by = part();
    conv.problem = parse_conv(part());
    while (!line.empty()) {
      const std::string time = part();
      const std::size_t us = time.rfind(' ');
      REQUIRE(conv.us.emplace(time.substr(0, us), std::stod(time.substr(us + 1))).second);
    }
    REQUIRE(!conv.us.empty());
  }
  return all;
}

}  // namespace lenslet::test
