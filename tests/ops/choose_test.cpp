// The rule that chooses kernels (docs/conv-choice.md), with fake kernels that offer what a test needs.

#include "ops/core/choose.h"
#include "tests/expect_error.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <deque>
#include <string>
#include <vector>

namespace lenslet::test {
namespace {

constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
const TensorType image{DType::f32, {1, 16, 32, 32}};

/// A candidate for one input and one output of `image`'s type, with its estimate and format.
struct Offered {
  double us = 0;
  Format format = nhwc;
};

class FakeKernel final : public Kernel {
 public:
  FakeKernel(std::string name, std::vector<Offered> offered, std::string refusal)
      : name_(std::move(name)), offered_(std::move(offered)), refusal_(std::move(refusal)) {}

  std::string_view name() const override { return name_; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return DTypeSet::any(); }
  Offer offer(const Problem&, const Target&) const override {
    Offer offer;
    offer.refusal = refusal_;
    for (const Offered& one : offered_) {
      Candidate candidate;
      candidate.config = fmt::format("us={}", one.us);
      candidate.inputs = candidate.outputs = {one.format};
      candidate.estimated_us = one.us;
      offer.candidates.push_back(candidate);
    }
    return offer;
  }
  std::unique_ptr<const BoundKernel> bind(const Binding&) const override { return nullptr; }

 private:
  std::string name_;
  std::vector<Offered> offered_;
  std::string refusal_;
};

FakeKernel offers(std::string name, std::vector<Offered> list) { return {std::move(name), std::move(list), {}}; }
FakeKernel refuses(std::string name, std::string why) { return {std::move(name), {}, std::move(why)}; }

const DeviceProfile& one_core() {
  static const DeviceProfile profile = cpu_profile(1);
  return profile;
}
const Target target{.device = reference_gpu()}, on_cpu{.device = one_core()};

/// The node to choose for: an operator on one image.
const Problem& node() {
  static const InputInfo input{.present = true, .type = image};
  static const Problem problem(make_op("Relu", "", {}, 1), {&input, 1});
  return problem;
}

Choice choose(const std::deque<FakeKernel>& kernels, std::string_view forced = {}, bool where_accepted = false) {
  std::vector<const Kernel*> list;
  for (const FakeKernel& kernel : kernels) list.push_back(&kernel);
  return choose_among(list, node(), target, "a thing", forced, where_accepted);
}

std::string refusal(const std::deque<FakeKernel>& kernels, std::string_view forced = {}) {
  return refusal_of(ErrorKind::unsupported, [&] { (void)choose(kernels, forced); });
}

/// Cost of converting the node's input and output for a kernel that needs nchw.
double both_conversions_us() {
  return conversion_us(nhwc, nchw, image, target) + conversion_us(nchw, nhwc, image, target);
}

}  // namespace

TEST_CASE("choose/conversions_cost_where_bytes_move") {
  CHECK(conversion_us(nhwc, nchw, image, target) > 0);
  CHECK(conversion_us(nhwc, nhwc, image, target) == 0);
  CHECK(conversion_us(nhwc, nchw, {DType::f32, {4, 1, 9, 9}}, target) == 0);
  CHECK(conversion_us(nhwc, nchw, {DType::f32, {4, 16, 1, 1}}, target) == 0);
  CHECK(conversion_us(nhwc, nchw, {DType::f32, {2, 16, 32, 32}}, target) > conversion_us(nhwc, nchw, image, target));
  CHECK(conversion_us(nhwc, nchw, image, on_cpu) > 0);

  Format padded = nhwc;
  padded.halo = {1, 1, 1, 1};
  const auto neighbours = [&](const Format& input, const Format& output, InputMask given = no_inputs) {
    Candidate candidate;
    candidate.inputs = {input};
    candidate.outputs = {output};
    return neighbours_us(node(), candidate, target, given);
  };
  CHECK(neighbours(nhwc, nhwc) == 0);
  CHECK(neighbours(nchw, nhwc) == conversion_us(nhwc, nchw, image, target));
  CHECK(neighbours(nchw, nchw) == doctest::Approx(both_conversions_us()));
  CHECK(neighbours(padded, nhwc) == conversion_us(nhwc, padded, image, target));
  CHECK(neighbours(padded, nhwc) > 0);
  CHECK(neighbours(nchw, nhwc, input_bit(0)) == 0);
  CHECK(neighbours(nhwc, nhwc, input_bit(0)) == conversion_us(nchw, nhwc, image, target));
  CHECK(neighbours(nhwc, nchw, input_bit(0)) == doctest::Approx(both_conversions_us()));
  padded.order = Format::Order::row_major;
  CHECK(neighbours(padded, nhwc) > neighbours(nchw, nhwc));  // the halo takes a step of its own
}

TEST_CASE("choose/plain_conversions_are_left_out_on_the_cpu") {
  Format padded = nchw;
  padded.halo = {1, 1, 1, 1};
  Candidate candidate;
  candidate.inputs = candidate.outputs = {nchw};
  CHECK(neighbours_us(node(), candidate, on_cpu) == 0);
  candidate.inputs = {padded};
  CHECK(neighbours_us(node(), candidate, on_cpu) == conversion_us(nchw, padded, image, on_cpu));
  CHECK(neighbours_us(node(), candidate, on_cpu) > 0);
}

TEST_CASE("choose/least_estimate_with_its_neighbours") {
  const double conversions = both_conversions_us();
  const std::deque<FakeKernel> kernels{offers("first", {{10, nchw}}), offers("second", {{10 + conversions / 2, nhwc}}),
                                       refuses("third", "it is odd")};
  const Choice choice = choose(kernels);
  CHECK((choice.kernel == &kernels[1]));
  CHECK(choice.candidate.estimated_us == doctest::Approx(10 + conversions / 2));
  CHECK(choice.reason ==
        fmt::format("least estimate: {:.0f} us, then first {:.0f} us", 10 + conversions / 2, 10 + conversions));
  REQUIRE(choice.rows.size() == 3);
  CHECK((choice.rows[0].kernel == &kernels[0]));
  CHECK(choice.rows[0].neighbours_us == doctest::Approx(conversions));
  CHECK(choice.rows[0].total_us() == doctest::Approx(10 + conversions));
  CHECK(choice.rows[1].neighbours_us == 0);
  CHECK(choice.rows[2].refusal == "it is odd");

  // The same among the candidates of one kernel.
  const Choice one = choose({offers("only", {{10, nchw}, {10 + conversions / 2, nhwc}, {10 + conversions, nhwc}})});
  CHECK((one.candidate.inputs[0] == nhwc));
  CHECK(one.candidate.config == fmt::format("us={}", 10 + conversions / 2));
  CHECK(one.reason == fmt::format("least estimate: {:.0f} us", 10 + conversions / 2));
}

TEST_CASE("choose/at_equal_cost_the_earlier") {
  std::deque<FakeKernel> kernels{offers("a", {{7}}), offers("b", {{5}}), offers("c", {{5}}), offers("d", {{5}})};
  CHECK((choose(kernels).kernel == &kernels[1]));
  CHECK(choose(kernels).reason == "least estimate: 5 us, then c 5 us");
  kernels.push_front(offers("z", {{5}}));
  CHECK((choose(kernels).kernel == &kernels[0]));
}

TEST_CASE("choose/a_forced_kernel_is_taken_or_its_refusal_told") {
  const std::deque<FakeKernel> kernels{offers("fast", {{5}}), offers("slow", {{50}, {40}}),
                                       refuses("none", "it is odd")};
  const Choice forced = choose(kernels, "slow");
  CHECK((forced.kernel == &kernels[1]));
  CHECK(forced.candidate.config == "us=40");
  CHECK(forced.reason == "forced");
  CHECK(forced.rows.size() == 3);
  CHECK(choose(kernels, "slow", true).reason == "forced");
  CHECK(refusal(kernels, "none") == "none refuses a thing: it is odd");
  const Choice accepted = choose(kernels, "none", true);
  CHECK((accepted.kernel == &kernels[0]));
  CHECK(accepted.reason == "least estimate: 5 us, then slow 40 us (none refuses: it is odd)");
}

TEST_CASE("choose/no_kernel_is_told_with_the_reason_that_there_is") {
  CHECK(refusal({}) == "there is no kernel for it");
  CHECK(refusal({refuses("only", "it is odd")}) == "it is odd");
  CHECK(refusal({refuses("one", "it is odd"), refuses("two", "it is even")}) == "no kernel takes a thing");
  CHECK(refusal({refuses("one", "it is odd"), refuses("two", "it is even")}, "two") ==
        "two refuses a thing: it is even");
}

TEST_CASE("choose/of_an_operator") {
  const Choice choice = choose_kernel(node(), on_cpu, "a Relu");
  CHECK((choice.kernel == kernels_of("Relu", DeviceKind::cpu).front()));
  CHECK(choice.rows.size() == 1);
}

}  // namespace lenslet::test
