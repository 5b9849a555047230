#include "tests/cuda/drawn_product.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cuda/upload.h"
#include "base/half.h"
#include "tests/larger_error.h"

namespace lenslet::test {
namespace {

constexpr std::int64_t guard = 64;  // elements of NaN on both sides
constexpr auto nan_byte = std::byte{0xff};

void put(DType type, float value, std::byte* to) {
  const std::uint16_t half = type == DType::f16 ? f16_from_f32(value) : bf16_from_f32(value);
  if (type == DType::f32)
    std::memcpy(to, &value, sizeof value);
  else
    std::memcpy(to, &half, sizeof half);
}

double get(DType type, const std::byte* from) {
  std::uint16_t half = 0;
  float value = 0;
  if (type == DType::f32)
    std::memcpy(&value, from, sizeof value);
  else
    std::memcpy(&half, from, sizeof half);
  return type == DType::f32 ? double{value} : double{type == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half)};
}

}  // namespace

std::string ProductCase::str() const {
  return fmt::format("{}x{}x{}{} B {} batch {}{}{}{}{}", m, n, k, trans_a ? " A [k,m]" : "",
                     trans_b ? "[n,k]" : "[k,n]", batch, one_b ? " of one B" : "", residual ? " residual" : "",
                     in_place ? " in place" : "", operands_shift + y_shift > 0 ? " shifted" : "");
}

DrawnProduct::Matrix::Matrix(std::mt19937& random, DType type, std::int64_t rows, std::int64_t columns,
                             std::int64_t row_step, std::int64_t shift)
    : ld(row_step), elems(rows * row_step) {
  const auto size = static_cast<std::int64_t>(dtype_bytes(type));
  begin_ = (guard + shift) * size;
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::byte> all(static_cast<std::size_t>(begin_ + (elems + guard) * size), nan_byte);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      std::byte* const at = all.data() + begin_ + (i * ld + j) * size;
      put(type, uniform(random), at);
      values.push_back(get(type, at));
    }
  memory_ = cuda::upload(all);
}

DrawnProduct::DrawnProduct(const cuda::Context& context, const ProductCase& t, DType x, DType y, unsigned seed,
                           const std::function<double(double)>& activate)
    : context_(context),
      t_(t),
      y_type_(y),
      random_(seed),
      a_(random_, x, t.batch * (t.trans_a ? t.k : t.m), t.trans_a ? t.m : t.k, (t.trans_a ? t.m : t.k) + t.between,
         t.operands_shift),
      b_(random_, x, (t.one_b ? 1 : t.batch) * (t.trans_b ? t.n : t.k), t.trans_b ? t.k : t.n,
         (t.trans_b ? t.k : t.n) + t.between, t.operands_shift),
      c_(random_, DType::f32, t.m, t.n, t.n),
      residual_(random_, y, t.batch * t.m, t.n, y_ld()),
      y_(static_cast<std::size_t>(bytes(before() + t.batch * t.m * y_ld() + guard))) {
  const std::int64_t row_a = t.trans_a ? 1 : t.k, step_a = t.trans_a ? t.m : 1;
  const std::int64_t column_b = t.trans_b ? t.k : 1, step_b = t.trans_b ? 1 : t.n;
  for (std::int64_t at = 0; at < t.batch * t.m * t.n; ++at) {
    const std::int64_t product = at / (t.m * t.n), i = at / t.n % t.m, j = at % t.n;
    const double* const row = a_.values.data() + product * t.m * t.k + i * row_a;
    const double* const column = b_.values.data() + (t.one_b ? 0 : product * t.k * t.n) + j * column_b;
    double sum = 0;
    for (std::int64_t l = 0; l < t.k; ++l) sum += row[l * step_a] * column[l * step_b];
    sum *= double{t.alpha};
    if (t.has_c()) sum += double{t.beta} * c_.values[static_cast<std::size_t>(t.full_c ? i * t.n + j : j)];
    if (t.has_residual()) sum += double{t.residual_by} * residual_.values[static_cast<std::size_t>(at)];
    exact_.push_back(activate ? activate(sum) : sum);
  }
  // Factors uniform in (-1, 1) have the variance 1/3.
  const auto squared = [](float value) { return double{value} * double{value}; };
  rms_ = std::sqrt(squared(t.alpha) * static_cast<double>(t.k) / 9 + (t.has_c() ? squared(t.beta) / 3 : 0) +
                   (t.has_residual() ? squared(t.residual_by) / 3 : 0));
}

std::int64_t DrawnProduct::before() const { return guard + t_.y_shift; }

double DrawnProduct::check(const std::string& name, double acc, double last, const std::function<void()>& queue) {
  const std::string what = name + " " + t_.str();
  std::vector<std::byte> made = run(queue);
  CHECK_MESSAGE(run(queue) == made, what, ": other bits in the second run");
  double worst = 0, largest = 0;  // relative to the tolerance, and absolute
  std::size_t where = 0;
  double got = 0;
  for (std::size_t at = 0; at < exact_.size(); ++at) {
    const auto i = static_cast<std::int64_t>(at);
    std::byte* const element = made.data() + bytes(before() + i / t_.n * y_ld() + i % t_.n);
    const double value = get(y_type_, element), error = std::abs(value - exact_[at]);
    const double part = error / (acc * rms_ + last * std::abs(exact_[at]));
    if (!(part <= worst)) {
      where = at;
      got = value;
    }
    worst = larger_error(worst, part);
    largest = larger_error(largest, error);
    std::fill_n(element, bytes(1), nan_byte);  // what remains surrounds y
  }
  CHECK_MESSAGE(worst <= 1, fmt::format("{}: y[{}] is {}, exact {}, off by {} of what is allowed", what, where, got,
                                        exact_[where], worst));
  CHECK_MESSAGE(std::ranges::all_of(made, [](std::byte byte) { return byte == nan_byte; }), what, ": wrote beside y");
  return largest;
}

std::vector<std::byte> DrawnProduct::run(const std::function<void()>& queue) {
  CUDA_CHECK(cudaMemset(y_.data(), 0xff, y_.bytes()));
  if (t_.in_place)
    CUDA_CHECK(cudaMemcpy(y(), residual_.data(), static_cast<std::size_t>(bytes(t_.batch * t_.m * y_ld())),
                          cudaMemcpyDeviceToDevice));
  CUDA_CHECK(cudaDeviceSynchronize());  // the session's stream does not wait for the stream that fills
  queue();
  CUDA_CHECK(cudaStreamSynchronize(context_.stream));
  std::vector<std::byte> made(y_.size());
  CUDA_CHECK(cudaMemcpy(made.data(), y_.data(), y_.bytes(), cudaMemcpyDeviceToHost));
  return made;
}

}  // namespace lenslet::test
