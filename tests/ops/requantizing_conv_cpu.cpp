#include <memory>

#include "base/dtypes.h"
#include "tests/ops/requantizing_conv.h"

namespace lenslet::test {
namespace {

using EightBits = Types<std::int8_t, std::uint8_t>;

class Bound final : public BoundConv {
 public:
  using BoundConv::BoundConv;

 private:
  void compute(const ConvRun& run) const override {
    dispatch(problem.x_storage, EightBits(), [&]<typename X>(std::type_identity<X>) {
      dispatch(problem.storage, EightBits(), [&]<typename Y>(std::type_identity<Y>) {
        RequantizingCall<X> call(problem);
        call.point_at(run);
        for (std::int64_t i = 0; i < problem.n * problem.p * problem.q * problem.k; ++i) call.store(i, run.y<Y>());
      });
    });
  }
};

class OnCpu final : public RequantizingConv {
 public:
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile&) const override {
    return std::make_unique<Bound>(p);
  }
};

}  // namespace

const Kernel& requantizing_conv() {
  static const OnCpu kernel;
  return kernel;
}

}  // namespace lenslet::test
