#include <limits>

#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/reduce_kernel.cuh"

namespace lenslet::cuda {

namespace {

struct ArgRule {
  bool largest, last;
};

template <typename T>
struct ArgFold {
  using In = T;
  using Out = std::int64_t;
  using Rule = ArgRule;
  static constexpr T neutral = std::numeric_limits<T>::quiet_NaN();
  std::int64_t where = -1;  ///< -1: nothing yet
  T best = neutral;

  __device__ explicit ArgFold(Rule) {}
  __device__ void add(T x, std::int64_t i, Rule rule) {
    if (x == x || i == 0) take(x, i, rule);
  }
  __device__ void merge(const ArgFold& other, Rule rule) {
    if (other.where >= 0) take(other.best, other.where, rule);
  }
  __device__ std::int64_t result(std::int64_t, Rule) const { return where; }

 private:
  // A NaN gets here only as element 0 and beats all others.
  __device__ void take(T x, std::int64_t i, Rule rule) {
    const bool better = x != x || (rule.largest ? x > best : x < best);
    const bool equal = x == best && (rule.last ? i > where : i < where);
    if (where >= 0 && !(better || equal)) return;
    best = x;
    where = i;
  }
};

}  // namespace

void arg_extreme(const Context& context, bool largest, bool last, DType dtype, const reduce::Loops& loops,
                 const void* from, std::int64_t* to, std::byte* workspace) {
  dispatch(dtype, ArgTypes(), [&]<typename T>(std::type_identity<T>) {
    reduce_by<ArgFold<T>>(context, loops, {largest, last}, from, to, workspace);
  });
}

}  // namespace lenslet::cuda
