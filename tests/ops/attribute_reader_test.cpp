#include <doctest/doctest.h>

#include "ops/core/op.h"

using namespace lenslet;

namespace {

std::string message_of(const auto& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("attributes/values_and_fallbacks") {
  const AttributeList list{{"axis", std::int64_t{-1}},           {"alpha", 0.25},
                           {"mode", std::string("CRD")},         {"pads", std::vector<std::int64_t>{1, 2}},
                           {"scales", std::vector<double>{1.5}}, {"value", Tensor::of<float>(Shape{1}, {3.0F})}};
  AttributeReader reader(list);
  CHECK(reader.integer("axis", 7) == -1);
  CHECK(reader.required_integer("axis") == -1);
  CHECK(reader.real("alpha", 1) == 0.25);
  CHECK(reader.text("mode", "DCR") == "CRD");
  CHECK(reader.integers("pads") == std::vector<std::int64_t>{1, 2});
  CHECK(reader.reals("scales") == std::vector<double>{1.5});
  CHECK(reader.tensor("value")->values<float>()[0] == 3.0F);
  CHECK(reader.integer("absent", 7) == 7);
  CHECK(reader.text("absent", "DCR") == "DCR");
  CHECK(reader.integers("absent").empty());
  CHECK_FALSE(reader.tensor("absent").has_value());
  CHECK_NOTHROW(reader.finish());
}

TEST_CASE("attributes/wrong_kind_is_named") {
  const AttributeList list{{"axis", 1.5}, {"mode", std::int64_t{1}}};
  AttributeReader reader(list);
  CHECK(message_of([&] { reader.integer("axis", 0); }) == "attribute 'axis' must be an integer");
  CHECK(message_of([&] { reader.text("mode", ""); }) == "attribute 'mode' must be a string");
  CHECK(message_of([&] { reader.integers("axis"); }) == "attribute 'axis' must be a list of integers");
  CHECK(message_of([&] { reader.required_integer("to"); }) == "attribute 'to' is missing");
}

TEST_CASE("attributes/unknown_is_refused_by_name") {
  const AttributeList list{{"axis", std::int64_t{1}}, {"surprise", std::int64_t{1}}, {"harmless", 1.0}};
  AttributeReader reader(list);
  reader.integer("axis", 0);
  reader.ignore("harmless");
  CHECK(message_of([&] { reader.finish(); }).find("'surprise'") != std::string::npos);
}
