// A plan as JSON. The writer is our own, so the text is compared here; tests/tools parses `lenslet inspect --json`.

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
  step.outputs = {"known", "other"};
  step.output_shapes = {{1, 2}, {1, 2, 3, 4}};
  step.output_formats = {formats::nchw, formats::nhwc};
  step.candidates = {{.algorithm = "one", .refusal = "no", .config = {}},
                     {.algorithm = "two", .refusal = {}, .config = "k=1"}};
  plan.steps = {step};
  const std::string text = to_json(plan);
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  CHECK(has(R"("outputs":[{"name":"known","shape":[1,2]},{"name":"late","shape":null}])"));
  CHECK(has(
      R"("name":"c\"","op":"Conv","attributes":{"pads":[1,2],"value":{"dtype":"float16","shape":[3]},"alpha":0.5})"));
  CHECK(has(R"("outputs":[{"name":"known","shape":[1,2],"layout":"nchw"},)"
            R"({"name":"other","shape":[1,2,3,4],"layout":"nhwc"}])"));
  CHECK(has(R"("candidates":[{"algorithm":"one","refusal":"no"},{"algorithm":"two","config":"k=1")"));
}

TEST_CASE("exec/plan_json/every_number_under_its_name") {
  PlanInfo plan;
  plan.threads = 3;
  plan.inputs = {{"x", {4, 5}}};
  StepInfo step;
  step.inputs = {"x", ""};
  step.flops = 6;
  step.bytes = 7;
  step.estimated_us = 8.5;
  step.no_op = true;
  step.workspace_bytes = 9;
  step.config = "rows=2";
  step.tolerance = 0.25;
  step.candidates = {{.algorithm = "one",
                      .refusal = {},
                      .config = "k=1",
                      .estimated_us = 10.5,
                      .neighbours_us = 11.5,
                      .workspace_bytes = 12,
                      .tolerance = 0.5}};
  step.problem = "a thing";
  step.algorithm = "one";
  step.reason = "least";
  plan.steps = {step};
  plan.late = {{"n", "NonZero", "from data", {{13, 14}, {}}}};
  plan.bands = {{15, 16, 17, "fits L2"}};
  plan.placements = {{"v", 18, 19, 20, 21}};
  plan.memory = {.weight_bytes = 22,
                 .uploaded_bytes = 23,
                 .prepared_bytes = 24,
                 .activation_bytes = 25,
                 .activation_sum_bytes = 26,
                 .lower_bound_bytes = 27,
                 .workspace_bytes = 28,
                 .peak_bytes = 29};
  plan.late_copies = 30;
  plan.late_copied_bytes = 31;
  plan.layout_conversions = 32;
  plan.type_conversions = 33;
  plan.explicit_paddings = 34;
  const std::string text = to_json(plan);
  CAPTURE(text);
  for (const char* const part :
       {R"("threads":3,)", R"("inputs":[{"name":"x","shape":[4,5]}])",
        R"("inputs":["x",""],"outputs":[],"flops":6.0,"bytes":7,"estimated_us":8.5,"no_op":true,"workspace_bytes":9,)"
        R"("config":"rows=2","tolerance":0.25,"problem":"a thing","algorithm":"one","reason":"least",)"
        R"("candidates":[{"algorithm":"one","config":"k=1","estimated_us":10.5,"neighbours_us":11.5,)"
        R"("workspace_bytes":12,"tolerance":0.5}])",
        R"({"name":"n","op":"NonZero","reason":"from data","at_most":[[13,14],[]]})",
        R"({"first_step":15,"last_step":16,"rows":17,"reason":"fits L2"})",
        R"({"value":"v","offset":18,"bytes":19,"first_step":20,"last_step":21})",
        R"({"weight_bytes":22,"uploaded_bytes":23,"prepared_bytes":24,"activation_bytes":25,)"
        R"("activation_sum_bytes":26,"lower_bound_bytes":27,"workspace_bytes":28,"peak_bytes":29})",
        R"("copies":30,"copied_bytes":31)", R"("layout_conversions":32)", R"("type_conversions":33)",
        R"("explicit_paddings":34)"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
}

}  // namespace
}  // namespace lenslet::test
