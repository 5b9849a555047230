#include <memory>

#include "base/cuda/launch.h"
#include "base/dtypes.h"
#include "ops/conv/cuda/one_launch.cuh"
#include "tests/ops/requantizing_conv.h"

namespace lenslet::test {
namespace {

using EightBits = Types<std::int8_t, std::uint8_t>;
constexpr unsigned threads = 128;

template <typename X, typename Y>
struct Call : RequantizingCall<X> {
  Y* y = nullptr;
  using RequantizingCall<X>::RequantizingCall;
  void point_at(const ConvRun& run) {
    RequantizingCall<X>::point_at(run);
    y = run.y<Y>();
  }
};

template <typename X, typename Y>
__global__ void requantizing(Call<X, Y> call) {
  cuda::wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < std::int64_t{call.n} * call.p * call.q * call.k) call.store(i, call.y);
}

class OnDevice final : public RequantizingConv {
 public:
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile&) const override {
    std::unique_ptr<const BoundKernel> bound;
    dispatch(p.x_storage, EightBits(), [&]<typename X>(std::type_identity<X>) {
      dispatch(p.storage, EightBits(), [&]<typename Y>(std::type_identity<Y>) {
        bound = std::make_unique<cuda::OneLaunch<Call<X, Y>>>(
            p, Call<X, Y>(p), requantizing<X, Y>, cuda::blocks_for(p.n * p.p * p.q * p.k, threads), threads);
      });
    });
    return bound;
  }
};

}  // namespace

const Kernel& requantizing_conv() {
  static const OnDevice kernel;
  return kernel;
}

}  // namespace lenslet::test
