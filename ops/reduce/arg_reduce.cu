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
  std::int64_t where = -1;  ///< -1: nothing yet
  T best{};

  __device__ explicit ArgFold(Rule) {}
  /// The last choice of all: it can only tie with equal elements, see result().
  __device__ static T neutral(Rule rule) { return rule.largest ? reduce::least_value<T> : reduce::greatest_value<T>; }
  __device__ void add(T x, std::int64_t i, Rule rule) { take(x, i, rule); }
  __device__ void merge(const ArgFold& other, Rule rule) {
    if (other.where >= 0) take(other.best, other.where, rule);
  }
  /// The last of equals may be a `neutral` behind the end: then all elements are equal, and the last one is the result.
  __device__ std::int64_t result(std::int64_t count, Rule) const { return where < count ? where : count - 1; }

 private:
  __device__ void take(T x, std::int64_t i, Rule rule) {
    const bool nan = x != x, best_nan = best != best;
    const bool better = nan ? !best_nan : (rule.largest ? x > best : x < best);
    const bool equal = (x == best || (nan && best_nan)) && (rule.last ? i > where : i < where);
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
