// A plan as JSON: written by hand, so read by eye here; tests/tools reads what `lenslet inspect --json` makes of it.

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "base/json_writer.h"
#include "lenslet/plan_json.h"

namespace lenslet::test {
namespace {

TEST_CASE("exec/plan_json/writer") {
  JsonWriter json;
  json.object([&] {
    json.array("none", [] {});
    json.array("numbers", [&] {
      json.element(5.0);
      json.element(3.4e-6);
      json.element(-1);
      json.element(std::numeric_limits<std::uint64_t>::max());
      json.element(std::numeric_limits<double>::infinity());
      json.element(true);
    });
    json.array("objects", [&] {
      json.object([] {});
      json.object([&] { json.member("a", nullptr); });
    });
    json.member("text", "\"\\\n\x7f\xc3\xa4\xff\xe2\x82 \xed\xa0\x80\xf0\x9f\x90\x88");
  });
  CHECK(json.take() ==
        R"({"none":[],"numbers":[5.0,3.4e-06,-1,18446744073709551615,null,true],"objects":[{},{"a":null}],)"
        "\"text\":\"\\\"\\\\\\u000a\\u007f\xc3\xa4\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd\xf0\x9f\x90\x88\"}");
}

TEST_CASE("exec/plan_json/late_outputs_and_candidates") {
  PlanInfo plan;
  plan.device = "cpu";
  plan.outputs = {{"known", {1, 2}}, {"late", {}}};
  plan.late_outputs = {1};
  StepInfo step;
  step.name = "c\"";
  step.op = "Conv";
  step.attributes = {{"pads", std::vector<std::int64_t>{1, 2}}, {"value", Tensor(DType::f16, {3})}, {"alpha", 0.5}};
  step.outputs = {"known"};
  step.output_shapes = {{1, 2}};
  step.output_formats = {formats::nchw};
  step.candidates = {{.algorithm = "one", .refusal = "no", .config = {}},
                     {.algorithm = "two", .refusal = {}, .config = "k=1"}};
  plan.steps = {step};
  const std::string text = to_json(plan);
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  CHECK(has(R"("outputs":[{"name":"known","shape":[1,2]},{"name":"late","shape":null}])"));
  CHECK(has(
      R"("name":"c\"","op":"Conv","attributes":{"pads":[1,2],"value":{"dtype":"float16","shape":[3]},"alpha":0.5})"));
  CHECK(has(R"("candidates":[{"algorithm":"one","refusal":"no"},{"algorithm":"two","config":"k=1")"));
}

}  // namespace
}  // namespace lenslet::test
