// LayoutConvert on the device: shapes around the edges of every kernel behind it, against the host's conversion.

#include "ops/movement/layout_convert.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "base/cuda/session.h"
#include "tests/cuda/device_block.h"
#include "tests/cuda/skip.h"

namespace lenslet::test {
namespace {

void check(const cuda::Session& session, DType dtype, const Shape& shape, Format to, std::mt19937& random) {
  const Format from = to == formats::nhwc ? formats::nchw : formats::nhwc;
  Tensor x(dtype, shape, from);
  auto* bytes = static_cast<unsigned char*>(x.data());
  for (std::size_t i = 0; i < x.bytes(); ++i) bytes[i] = static_cast<unsigned char>(random());
  const Tensor wanted = x.to_format(to);

  DeviceBlock input(x.data(), x.bytes()), output(x.bytes());
  const Tensor inputs[] = {Tensor::view(dtype, shape, input.data(), from)};
  Tensor outputs[] = {Tensor::view(dtype, shape, output.data(), to)};
  const Tensor host_inputs[1];
  make_layout_convert()->run_cuda({inputs, outputs, host_inputs, {}, nullptr, session.context()});
  session.stream().synchronize();

  const std::string where = fmt::format("{} {} to {}", shape.str(), to_string(dtype), to_string(to));
  CHECK_MESSAGE(output.intact(), where, ": bytes around the output were written");
  const std::vector<std::byte> got = output.read();
  const std::size_t elem = dtype_bytes(dtype);
  std::optional<std::size_t> first_wrong;
  for (std::size_t i = 0; i < got.size() && !first_wrong; ++i)
    if (got[i] != static_cast<const std::byte*>(wanted.data())[i]) first_wrong = i / elem;
  CHECK_MESSAGE(!first_wrong.has_value(), where, ": element ", first_wrong.value_or(0), " of memory is wrong");
}

}  // namespace

TEST_CASE("cuda/layout_convert/every_size") {
  if (!have_device("cuda/layout_convert/every_size")) return;
  const cuda::Session session(0);
  std::mt19937 random(7);
  // Channels: those that interleave, those below a tile, around 16-byte vectors, around tiles of 32, 64 and 128.
  for (const std::int64_t channels : {1, 2, 3, 4, 5, 15, 16, 24, 32, 48, 63, 64, 65, 128, 130, 144})
    // Pixels: one, odd ones, whole vectors of every type, whole tiles, more than a block of the interleaving kernels.
    for (const Shape& image : {Shape{1, 1}, Shape{3, 5}, Shape{4, 4}, Shape{7, 7}, Shape{8, 20}, Shape{16, 24},
                               Shape{33, 31}, Shape{64, 66}})
      for (const std::int64_t n : {1, 3})
        for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::i64})
          for (const Format to : {formats::nhwc, formats::nchw})
            check(session, dtype, Shape{n, channels, image[0], image[1]}, to, random);
}

}  // namespace lenslet::test
